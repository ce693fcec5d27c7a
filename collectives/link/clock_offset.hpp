#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace cox::detail::world {

/// As messages carry it.
[[nodiscard]] inline std::uint64_t nanoseconds_of(std::chrono::steady_clock::time_point time) noexcept {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(time.time_since_epoch()).count());
}

/// The offset between the clocks of two processes, from messages in both directions, as in the Network Time Protocol
/// (RFC 5905, section 8): of the last measurements the one with the shortest round trip counts. One thread at a time.
class ClockOffset {
 public:
  struct Measured {
    std::int64_t offset;  ///< the other clock minus this one
    std::uint64_t error;  ///< half of the round trip
  };

  /// All times in nanoseconds. This process sent a message at `sent` and got an answer at `received`; the other process
  /// got the message `held` before it sent the answer, at `answered` of its own clock. Returns the best of the last
  /// measurements.
  Measured add(std::int64_t sent, std::int64_t held, std::int64_t answered, std::int64_t received) noexcept {
    const std::int64_t round_trip = received - sent - held;
    // A negative one is no measurement: the other end is wrong.
    if (round_trip >= 0) {
      measured_[next_] = {answered + round_trip / 2 - received, static_cast<std::uint64_t>(round_trip) / 2};
      next_ = (next_ + 1) % measured_.size();
    }
    Measured best = measured_.front();
    for (const Measured& each : measured_)
      if (each.error < best.error) best = each;
    return best;
  }

  static constexpr std::size_t kept = 32;

 private:
  std::array<Measured, kept> measured_ = [] {
    std::array<Measured, kept> none{};
    none.fill({0, std::numeric_limits<std::uint64_t>::max()});
    return none;
  }();
  std::size_t next_ = 0;
};

}  // namespace cox::detail::world
