#pragma once

#include <coxswain/runtime/small_vector.hpp>
#include <coxswain/runtime/unique_function.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace cox::detail {

/// Counts the pieces of work that a stream has finished: piece n is done when the count has reached n. What a timeline
/// semaphore is on a GPU. Any thread, unless said otherwise.
class Timeline {
 public:
  /// Pieces finished so far.
  [[nodiscard]] std::uint64_t count() const noexcept {
    // Acquire pairs with the release in advance: what the finished work wrote is visible.
    return count_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool reached(std::uint64_t value) const noexcept { return count() >= value; }
  /// One more piece is done. Runs the callbacks that waited for it on this thread. Only the stream calls this.
  void advance();
  /// Calls `callback` once: now, if `value` is reached, else in the advance that reaches it. Must not throw.
  void when(std::uint64_t value, UniqueFunction<void()> callback);
  /// Blocks until `value` is reached.
  void wait(std::uint64_t value);

 private:
  struct Waiting {
    std::uint64_t value;
    UniqueFunction<void()> callback;
  };

  std::atomic<std::uint64_t> count_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Waiting> waiting_;  // a heap, lowest value first; guarded by mutex_
};

/// The completion of one piece of a stream's work.
struct HostEvent {
  std::shared_ptr<Timeline> timeline;
  std::uint64_t value = 0;

  [[nodiscard]] bool reached() const noexcept { return timeline == nullptr || timeline->reached(value); }
};

using HostEvents = SmallVector<HostEvent, 4>;

}  // namespace cox::detail
