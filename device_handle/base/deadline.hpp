#pragma once

#include <chrono>

namespace cox::detail {

/// Returns the time point `time` from now; a negative `time` gives now. Returns time_point::max(), which means no
/// deadline, if the clock cannot represent the time point.
template <class Rep, class Period>
[[nodiscard]] std::chrono::steady_clock::time_point deadline_after(std::chrono::duration<Rep, Period> time) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point now = Clock::now();
  // Compare in floating-point seconds, so that no conversion overflows. The hour is a margin for rounding.
  const std::chrono::duration<long double> wanted(time);
  const std::chrono::duration<long double> countable(Clock::time_point::max() - now - std::chrono::hours(1));
  if (!(wanted < countable)) return Clock::time_point::max();
  if (wanted < std::chrono::duration<long double>::zero()) return now;
  return now + std::chrono::duration_cast<Clock::duration>(wanted);
}

}  // namespace cox::detail
