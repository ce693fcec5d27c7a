#pragma once

#include <chrono>

namespace cox::detail {

/// The time `time` from now; time_point::max(), which means no deadline, where the clock cannot count that far.
template <class Rep, class Period>
[[nodiscard]] std::chrono::steady_clock::time_point deadline_after(std::chrono::duration<Rep, Period> time) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point now = Clock::now();
  // As floating-point seconds: no conversion overflows. An hour of room for rounding.
  const std::chrono::duration<long double> wanted(time);
  const std::chrono::duration<long double> countable(Clock::time_point::max() - now - std::chrono::hours(1));
  if (!(wanted < countable)) return Clock::time_point::max();
  if (wanted < std::chrono::duration<long double>::zero()) return now;
  return now + std::chrono::duration_cast<Clock::duration>(wanted);
}

}  // namespace cox::detail
