#pragma once

#include <atomic>
#include <cstdint>

namespace cox::perf {

/// A number no other lane object of this process ever has, so that a thread can remember what it owns of a lane.
inline std::uint64_t next_lane_number() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

/// What this thread owns of the lane `number`; `make()` finds or makes it when the thread meets another lane.
template <class T, class Make>
T& of_this_thread(std::uint64_t number, Make make) {
  thread_local std::uint64_t last = 0;
  thread_local T* owned = nullptr;
  if (last != number) [[unlikely]] {
    owned = &make();
    last = number;
  }
  return *owned;
}

}  // namespace cox::perf
