#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace cox::tools {

/// How often a program is restarted, and after which delay.
struct RestartLimits {
  std::uint64_t restarts = 10;  ///< maximum number of restarts within `within`
  std::chrono::nanoseconds within{std::chrono::hours(1)};
  std::chrono::nanoseconds backoff{std::chrono::seconds(1)};  ///< delay before the first restart; doubles each time
  /// Maximum delay. A run of at least this length resets the delay to `backoff`.
  std::chrono::nanoseconds backoff_max{std::chrono::minutes(1)};

  /// "10 within 1h".
  [[nodiscard]] std::string to_string() const;
};

/// Counts the restarts of a program and computes the delay before each.
class RestartPolicy {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RestartPolicy(const RestartLimits& limits) noexcept : limits_(limits), delay_(limits.backoff) {}

  /// Call this when the program has ended, at the time `now`, after it ran for `ran`. Returns the delay before the
  /// restart, and counts the restart. Returns nullopt if the limit is reached.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> restart(Clock::time_point now, std::chrono::nanoseconds ran);

 private:
  RestartLimits limits_;
  std::chrono::nanoseconds delay_;        // before the next restart
  std::deque<Clock::time_point> recent_;  // restarts within limits_.within, the oldest first
};

}  // namespace cox::tools
