#include <coxswain/tools/cox/settings.hpp>

#include <coxswain/tools/cox/argument_error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

namespace cox::tools {
namespace {

[[noreturn]] void refuse(std::string_view option, std::string_view text, const std::string& expected) {
  throw ArgumentError(std::string(option) + ": '" + std::string(text) + "' is not " + expected);
}

constexpr std::array<std::pair<std::string_view, std::size_t>, 8> size_units{{
    {"", 1},
    {"B", 1},
    {"KB", 1'000},
    {"MB", 1'000'000},
    {"GB", 1'000'000'000},
    {"KiB", std::size_t{1} << 10U},
    {"MiB", std::size_t{1} << 20U},
    {"GiB", std::size_t{1} << 30U},
}};

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
      throw ArgumentError(std::string(option) + ": '" + std::string(setting.name) + "' is there twice");
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

double parse_probability(std::string_view option, std::string_view text) {
  const double value = parse_number(option, text);
  if (!(value >= 0 && value <= 1)) refuse(option, text, "a number from 0 to 1");
  return value;
}

std::size_t parse_size(std::string_view option, std::string_view text) {
  const std::string expected = "a size such as 64, 4KiB or 1MiB";
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) refuse(option, text, expected);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const auto& [name, bytes] : size_units) {
    if (name != unit) continue;
    if (value > std::numeric_limits<std::size_t>::max() / bytes) refuse(option, text, expected);
    return value * bytes;
  }
  refuse(option, text, expected);
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
