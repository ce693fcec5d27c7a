#pragma once

#include <chrono>
#include <cstdint>

namespace cox::stress {

/// Measures one call, in nanoseconds.
class Stopwatch {
 public:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::uint64_t elapsed() const noexcept {
    const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_);
    return static_cast<std::uint64_t>(time.count());
  }

 private:
  Clock::time_point start_ = Clock::now();
};

}  // namespace cox::stress
