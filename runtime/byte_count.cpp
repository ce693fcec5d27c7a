#include <coxswain/runtime/byte_count.hpp>

#include <array>
#include <cstdio>

namespace cox {

std::string format_byte_count(std::size_t bytes) {
  const std::string exact = std::to_string(bytes) + " B";
  if (bytes < 1000) return exact;
  static constexpr std::array<const char*, 6> units{"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000.0;
  std::size_t unit = 0;
  while (value >= 999.995 && unit + 1 < units.size()) {
    value /= 1000.0;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f %s", value, units[unit]);
  return std::string(text.data()) + " (" + exact + ")";
}

}  // namespace cox
