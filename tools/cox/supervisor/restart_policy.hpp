#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

namespace cox::tools {

/// How often, and how soon, a program is started again.
struct RestartLimits {
  std::uint64_t restarts = 10;  ///< at most, within...
  std::chrono::nanoseconds within{std::chrono::hours(1)};
  std::chrono::nanoseconds backoff{std::chrono::seconds(1)};      ///< before the first; doubles with each that follows
  std::chrono::nanoseconds backoff_max{std::chrono::minutes(1)};  ///< and a run as long as this starts it anew
};

/// Keeps account of restarts.
class RestartPolicy {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RestartPolicy(const RestartLimits& limits) noexcept : limits_(limits), delay_(limits.backoff) {}

  /// The program has ended now, after it ran that long. How long to wait before it is started again, which counts as a
  /// restart; nothing if the limit is reached.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> restart(Clock::time_point now, std::chrono::nanoseconds ran);

 private:
  RestartLimits limits_;
  std::chrono::nanoseconds delay_;        // before the next
  std::deque<Clock::time_point> recent_;  // restarts within limits_.within, the oldest first
};

}  // namespace cox::tools
