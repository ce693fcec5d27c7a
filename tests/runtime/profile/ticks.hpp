#pragma once

#include <coxswain/runtime/profile/profile_duration.hpp>

#include <chrono>

namespace cox::test {

/// The ticks of something that took so long.
inline ProfileTicks took(std::chrono::nanoseconds time) {
  const std::chrono::steady_clock::time_point begin(std::chrono::hours(1));
  return {begin, begin + time};
}

}  // namespace cox::test
