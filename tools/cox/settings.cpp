#include <coxswain/tools/cox/settings.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/config/duration.hpp>
#include <coxswain/tools/cox/argument_error.hpp>

#include <algorithm>
#include <charconv>

namespace cox::tools {
namespace {

[[noreturn]] void refuse(std::string_view option, std::string_view text, const std::string& expected) {
  throw ArgumentError(std::string(option) + ": '" + std::string(text) + "' is not " + expected);
}

}  // namespace

std::vector<Setting> parse_settings(std::string_view option, std::string_view text) {
  std::vector<Setting> settings;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == part.size())
      refuse(option, part, "of the form NAME=VALUE");
    const Setting setting{part.substr(0, equals), part.substr(equals + 1)};
    if (std::any_of(settings.begin(), settings.end(), [&](const Setting& s) { return s.name == setting.name; }))
      throw ArgumentError(std::string(option) + ": '" + std::string(setting.name) + "' is given twice");
    settings.push_back(setting);
    begin = end + 1;
  }
  return settings;
}

std::uint64_t parse_count(std::string_view option, std::string_view text, std::uint64_t minimum,
                          std::uint64_t maximum) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < minimum || value > maximum)
    refuse(option, text, "a whole number from " + std::to_string(minimum) + " to " + std::to_string(maximum));
  return value;
}

double parse_number(std::string_view option, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) refuse(option, text, "a number");
  return value;
}

std::chrono::duration<double> parse_seconds(std::string_view option, std::string_view text) {
  constexpr double most_seconds = 1e8;
  const double seconds = parse_number(option, text);
  if (!(seconds > 0 && seconds <= most_seconds)) refuse(option, text, "more than 0 and at most 100000000");
  return std::chrono::duration<double>(seconds);
}

double parse_probability(std::string_view option, std::string_view text) {
  const double value = parse_number(option, text);
  if (!(value >= 0 && value <= 1)) refuse(option, text, "a number from 0 to 1");
  return value;
}

std::size_t parse_size(std::string_view option, std::string_view text) {
  if (const auto bytes = parse_byte_count(text)) return *bytes;
  refuse(option, text, "a size such as 64, 4KiB or 1MiB");
}

std::chrono::nanoseconds parse_time(std::string_view option, std::string_view text, std::chrono::nanoseconds minimum) {
  const auto time = parse_duration(text);
  if (!time) refuse(option, text, "a time such as 500ms, 10s, 5min or 1h");
  if (*time < minimum) refuse(option, text, "at least " + format_duration(minimum));
  return *time;
}

std::string one_of(const std::vector<std::string_view>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += std::string(names[i]);
  }
  return text;
}

}  // namespace cox::tools
