#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

namespace cox::perf {

/// Measures the time since its construction.
class Stopwatch {
 public:
  [[nodiscard]] double nanoseconds() const {
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start_).count();
  }
  [[nodiscard]] double microseconds() const { return nanoseconds() / 1e3; }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Calls `call` `count` times, and returns the microseconds that each call took.
template <class Call>
[[nodiscard]] std::vector<double> microseconds_of_each(std::size_t count, Call call) {
  std::vector<double> taken;
  taken.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Stopwatch watch;
    call();
    taken.push_back(watch.microseconds());
  }
  return taken;
}

}  // namespace cox::perf
