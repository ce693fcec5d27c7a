#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>

namespace cox::perf {

struct LaneOptions {
  std::size_t capacity = 0;               ///< closures that may be queued before a push blocks; 0: no bound
  std::chrono::nanoseconds spin{20'000};  ///< how long the consumer looks for work before it parks
};

inline constexpr std::size_t bounded_capacity = 16'384;

struct ProbeClosure {
  void operator()() {}
};

/// A way to hand closures to one thread. push: from any thread; runs or queues the closure. stop: runs what is queued,
/// then ends the consumer; nobody may push after it.
template <class L>
concept Lane = std::constructible_from<L, const LaneOptions&> && requires(L& lane) {
  lane.push(ProbeClosure{});
  lane.stop();
};

}  // namespace cox::perf
