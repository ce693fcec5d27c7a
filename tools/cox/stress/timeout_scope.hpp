#pragma once

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/tools/cox/stress/round_book.hpp>

#include <chrono>

namespace cox::stress {

/// During its lifetime, collectives with missing ranks time out soon, or practically never.
class TimeoutScope {
 public:
  explicit TimeoutScope(bool soon) {
    constexpr std::chrono::nanoseconds late = std::chrono::hours(1);
    set_settings({{"collectives.timeout", soon ? RoundBook::short_timeout : late}});
  }
  TimeoutScope(const TimeoutScope&) = delete;
  TimeoutScope& operator=(const TimeoutScope&) = delete;
  ~TimeoutScope() { reset_settings({"collectives.timeout"}); }
};

}  // namespace cox::stress
