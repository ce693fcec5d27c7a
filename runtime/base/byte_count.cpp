#include <coxswain/runtime/base/byte_count.hpp>

#include <array>
#include <charconv>
#include <cstdio>
#include <limits>
#include <utility>

namespace cox {
namespace {

constexpr std::array<std::pair<std::string_view, std::size_t>, 8> units{{{"GiB", std::size_t{1} << 30U},
                                                                         {"MiB", std::size_t{1} << 20U},
                                                                         {"KiB", std::size_t{1} << 10U},
                                                                         {"B", 1},
                                                                         {"", 1},
                                                                         {"KB", 1'000},
                                                                         {"MB", 1'000'000},
                                                                         {"GB", 1'000'000'000}}};

}  // namespace

std::string format_byte_count(std::size_t bytes) {
  const std::string exact = std::to_string(bytes) + " B";
  if (bytes < 1000) return exact;
  static constexpr std::array<const char*, 6> decimal_units{"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000.0;
  std::size_t unit = 0;
  while (value >= 999.995 && unit + 1 < decimal_units.size()) {
    value /= 1000.0;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f %s", value, decimal_units[unit]);
  return std::string(text.data()) + " (" + exact + ")";
}

std::string exact_byte_count(std::size_t bytes) {
  if (bytes == 0) return "0B";
  for (const auto& [name, size] : units)
    if (bytes % size == 0) return std::to_string(bytes / size) + std::string(name);
  return std::to_string(bytes);
}

std::optional<std::size_t> parse_byte_count(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const auto& [name, size] : units) {
    if (name != unit) continue;
    if (value > std::numeric_limits<std::size_t>::max() / size) return std::nullopt;
    return value * size;
  }
  return std::nullopt;
}

}  // namespace cox
