#include <coxswain/runtime/config/setting_value.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/config/duration.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

namespace cox {
namespace {

using Type = SettingType;
using Kind = ConfigError::Kind;

std::optional<SettingValue> parse_boolean(std::string_view text) {
  if (text == "true" || text == "on" || text == "1") return true;
  if (text == "false" || text == "off" || text == "0") return false;
  return std::nullopt;
}

std::optional<SettingValue> parse_count(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<SettingValue> parse_size(std::string_view text) {
  if (const auto bytes = parse_byte_count(text)) return std::uint64_t{*bytes};
  return std::nullopt;
}

std::optional<SettingValue> parse_time(std::string_view text) {
  if (const auto duration = parse_duration(text)) return *duration;
  return std::nullopt;
}

template <class Enum, std::size_t count>
std::optional<SettingValue> parse_name(const std::array<std::string_view, count>& names, std::string_view text) {
  const auto* const found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

std::optional<SettingValue> parse(Type type, std::string_view text) {
  switch (type) {
    case Type::Boolean: return parse_boolean(text);
    case Type::Count: return parse_count(text);
    case Type::ByteSize: return parse_size(text);
    case Type::Duration: return parse_time(text);
    case Type::Text: return std::string(text);
    case Type::LogLevel: return parse_name<LogLevel>(log_level_names, text);
    case Type::QueuePolicy: return parse_name<QueuePolicy>(queue_policy_names, text);
    case Type::ProfileLevel: return parse_name<ProfileLevel>(profile_level_names, text);
    case Type::CheckMode: return parse_name<CheckMode>(check_mode_names, text);
  }
  return std::nullopt;
}

bool has_type(const SettingValue& value, Type type) noexcept {
  switch (type) {
    case Type::Boolean: return std::holds_alternative<bool>(value);
    case Type::Count:
    case Type::ByteSize: return std::holds_alternative<std::uint64_t>(value);
    case Type::Duration: return std::holds_alternative<std::chrono::nanoseconds>(value);
    case Type::Text: return std::holds_alternative<std::string>(value);
    case Type::LogLevel: return std::holds_alternative<LogLevel>(value);
    case Type::QueuePolicy: return std::holds_alternative<QueuePolicy>(value);
    case Type::ProfileLevel: return std::holds_alternative<ProfileLevel>(value);
    case Type::CheckMode: return std::holds_alternative<CheckMode>(value);
  }
  return false;
}

bool in_range(const Setting& setting, const SettingValue& value) noexcept {
  const auto within = [&](std::uint64_t number) { return number >= setting.minimum && number <= setting.maximum; };
  if (const auto* const number = std::get_if<std::uint64_t>(&value)) return within(*number);
  if (const auto* const duration = std::get_if<std::chrono::nanoseconds>(&value))
    return duration->count() >= 0 && within(static_cast<std::uint64_t>(duration->count()));
  return true;
}

// Accepts values of any type, including a type that the setting does not have.
std::string shown(const SettingValue& value) {
  struct Visitor {
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::uint64_t number) const { return std::to_string(number); }
    std::string operator()(std::chrono::nanoseconds duration) const { return format_duration(duration); }
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(LogLevel level) const {
      return std::string(log_level_names[static_cast<std::size_t>(level)]);
    }
    std::string operator()(QueuePolicy policy) const {
      return std::string(queue_policy_names[static_cast<std::size_t>(policy)]);
    }
    std::string operator()(ProfileLevel level) const {
      return std::string(profile_level_names[static_cast<std::size_t>(level)]);
    }
    std::string operator()(CheckMode mode) const {
      return std::string(check_mode_names[static_cast<std::size_t>(mode)]);
    }
  };
  return std::visit(Visitor(), value);
}

}  // namespace

SettingValue parse_setting_value(const Setting& setting, std::string_view text, const SettingSource& source) {
  const auto value = parse(setting.type, text);
  if (!value) throw bad_setting_value(Kind::Malformed, setting, in_quotes(text), source);
  if (!in_range(setting, *value)) throw bad_setting_value(Kind::OutOfRange, setting, in_quotes(text), source);
  return *value;
}

SettingValue checked_setting_value(const Setting& setting, SettingValue value, const SettingSource& source) {
  if (!has_type(value, setting.type)) {
    if (const auto* const text = std::get_if<std::string>(&value)) return parse_setting_value(setting, *text, source);
    throw bad_setting_value(Kind::Malformed, setting, shown(value), source);
  }
  if (!in_range(setting, value)) throw bad_setting_value(Kind::OutOfRange, setting, shown(value), source);
  return value;
}

std::string to_string(const Setting& setting, const SettingValue& value) {
  if (setting.type == Type::ByteSize) return exact_byte_count(std::get<std::uint64_t>(value));
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
