#pragma once

#include <coxswain/perf/queue/lane.hpp>

#include <mutex>
#include <utility>

namespace cox::perf {

/// No thread at all: the closure runs on its caller under a mutex.
class MutexInline {
 public:
  explicit MutexInline(const LaneOptions&) {}

  template <class F>
  void push(F&& f) {
    const std::lock_guard lock(mutex_);
    std::forward<F>(f)();
  }

  void stop() {}

 private:
  std::mutex mutex_;
};

static_assert(Lane<MutexInline>);

}  // namespace cox::perf
