#include <coxswain/runtime/config/duration.hpp>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace cox {
namespace {

using Nanoseconds = std::chrono::nanoseconds::rep;

constexpr std::array<std::pair<std::string_view, Nanoseconds>, 6> units{{{"h", 3'600'000'000'000},
                                                                         {"min", 60'000'000'000},
                                                                         {"s", 1'000'000'000},
                                                                         {"ms", 1'000'000},
                                                                         {"us", 1'000},
                                                                         {"ns", 1}}};

}  // namespace

std::string format_duration(std::chrono::nanoseconds duration) {
  const Nanoseconds count = duration.count();
  if (count == 0) return "0s";
  for (const auto& [name, length] : units)
    if (count % length == 0) return std::to_string(count / length) + std::string(name);
  return std::to_string(count) + "ns";
}

std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  Nanoseconds value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const auto& [name, length] : units) {
    if (name != unit) continue;
    if (value > std::numeric_limits<Nanoseconds>::max() / length) return std::nullopt;
    return std::chrono::nanoseconds(value * length);
  }
  return std::nullopt;
}

}  // namespace cox
