#include <coxswain/runtime/config/setting_value.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/config/duration.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace cox {
namespace {

using Kind = ConfigError::Kind;

constexpr const auto& names_of(LogLevel) { return log_level_names; }
constexpr const auto& names_of(QueuePolicy) { return queue_policy_names; }
constexpr const auto& names_of(ProfileLevel) { return profile_level_names; }
constexpr const auto& names_of(CheckMode) { return check_mode_names; }

using Parsed = std::optional<SettingValue>;

Parsed parse_boolean(std::string_view text) {
  if (text == "true" || text == "on" || text == "1") return true;
  if (text == "false" || text == "off" || text == "0") return false;
  return std::nullopt;
}

Parsed parse_count(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Parsed parse_size(std::string_view text) { return parse_byte_count(text); }

Parsed parse_time(std::string_view text) { return parse_duration(text); }

Parsed parse_text(std::string_view text) { return std::string(text); }

template <class Enum>
Parsed parse_name(std::string_view text) {
  const auto& names = names_of(Enum());
  const auto found = std::ranges::find(names, text);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

std::string expect_boolean(const Setting&) { return "true or false"; }

std::string expect_count(const Setting& setting) {
  return "a whole number from " + std::to_string(setting.minimum) + " to " + std::to_string(setting.maximum);
}

std::string expect_size(const Setting& setting) {
  return "a size such as 4096, 64KiB or 1GiB, at least " + exact_byte_count(setting.minimum) +
         (setting.maximum == SIZE_MAX ? "" : " and at most " + exact_byte_count(setting.maximum));
}

std::string expect_duration(const Setting& setting) {
  const auto shown = [](std::uint64_t nanoseconds) {
    return format_duration(std::chrono::nanoseconds(static_cast<std::chrono::nanoseconds::rep>(nanoseconds)));
  };
  return "a duration such as 20us or 10s, from " + shown(setting.minimum) + " to " + shown(setting.maximum);
}

std::string expect_text(const Setting&) { return "text"; }

template <class Enum>
std::string expect_name(const Setting&) {
  const auto& names = names_of(Enum());
  std::string text = "one of ";
  for (const std::string_view name : names) text += std::string(name) + (name == names.back() ? "" : ", ");
  return text;
}

// How the values of a type of settings are recognised, read and described.
struct TypeRow {
  bool (*holds)(const SettingValue& value);
  Parsed (*parse)(std::string_view text);
  std::string (*expectation)(const Setting& setting);
};

template <class T>
constexpr TypeRow row(decltype(TypeRow::parse) parse, decltype(TypeRow::expectation) expectation) {
  return {[](const SettingValue& value) { return std::holds_alternative<T>(value); }, parse, expectation};
}

// By SettingType.
constexpr std::array types{
    row<bool>(parse_boolean, expect_boolean),
    row<std::uint64_t>(parse_count, expect_count),
    row<std::uint64_t>(parse_size, expect_size),
    row<std::chrono::nanoseconds>(parse_time, expect_duration),
    row<std::string>(parse_text, expect_text),
    row<LogLevel>(parse_name<LogLevel>, expect_name<LogLevel>),
    row<QueuePolicy>(parse_name<QueuePolicy>, expect_name<QueuePolicy>),
    row<ProfileLevel>(parse_name<ProfileLevel>, expect_name<ProfileLevel>),
    row<CheckMode>(parse_name<CheckMode>, expect_name<CheckMode>),
};
static_assert(types.size() == static_cast<std::size_t>(SettingType::CheckMode) + 1);

const TypeRow& row_of(const Setting& setting) { return types[static_cast<std::size_t>(setting.type)]; }

bool in_range(const Setting& setting, const SettingValue& value) noexcept {
  const auto within = [&](std::uint64_t number) { return number >= setting.minimum && number <= setting.maximum; };
  if (const auto* const number = std::get_if<std::uint64_t>(&value)) return within(*number);
  if (const auto* const duration = std::get_if<std::chrono::nanoseconds>(&value))
    return duration->count() >= 0 && within(static_cast<std::uint64_t>(duration->count()));
  return true;
}

std::string print(bool flag) { return flag ? "true" : "false"; }
std::string print(std::uint64_t number) { return std::to_string(number); }
std::string print(std::chrono::nanoseconds duration) { return format_duration(duration); }
std::string print(const std::string& text) { return text; }
template <class Enum>
std::string print(Enum value) {
  return std::string(names_of(value)[static_cast<std::size_t>(value)]);
}

// Accepts values of any type, including a type that the setting does not have.
std::string shown(const SettingValue& value) {
  return std::visit([](const auto& held) { return print(held); }, value);
}

}  // namespace

std::string expectation(const Setting& setting) { return row_of(setting).expectation(setting); }

SettingValue parse_setting_value(const Setting& setting, std::string_view text, const SettingSource& source) {
  const auto value = row_of(setting).parse(text);
  if (!value) throw bad_setting_value(Kind::Malformed, setting, in_quotes(text), source);
  if (!in_range(setting, *value)) throw bad_setting_value(Kind::OutOfRange, setting, in_quotes(text), source);
  return *value;
}

SettingValue checked_setting_value(const Setting& setting, SettingValue value, const SettingSource& source) {
  if (!row_of(setting).holds(value)) {
    if (const auto* const text = std::get_if<std::string>(&value)) return parse_setting_value(setting, *text, source);
    throw bad_setting_value(Kind::Malformed, setting, shown(value), source);
  }
  if (!in_range(setting, value)) throw bad_setting_value(Kind::OutOfRange, setting, shown(value), source);
  return value;
}

std::string to_string(const Setting& setting, const SettingValue& value) {
  if (setting.type == SettingType::ByteSize) return exact_byte_count(std::get<std::uint64_t>(value));
  return shown(value);
}

ConfigError bad_setting_value(Kind kind, const Setting& setting, const std::string& text, const SettingSource& source) {
  return {kind,
          std::string(setting.key) + " is " + text + " (" + to_string(source) + "): expected " + expectation(setting)};
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 80;
  std::string line(text.substr(0, longest));
  std::replace_if(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20U; }, '?');
  return '"' + line + (text.size() > longest ? "...\"" : "\"");
}

}  // namespace cox
