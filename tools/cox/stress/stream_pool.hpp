#pragma once

#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/tools/cox/stress/random.hpp>

#include <array>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace cox::stress {

/// Streams that belong to no thread. Any thread.
class StreamPool {
 public:
  StreamPool() {
    for (StreamId& stream : shared_) stream = StreamId::allocate();
  }

  /// One of a few streams that all clients use at the same time.
  [[nodiscard]] StreamId shared(Random& random) const { return shared_[random.below(shared_.size())]; }
  /// A stream that no other client uses until it is released.
  [[nodiscard]] StreamId acquire(Random& random) {
    const std::lock_guard lock(mutex_);
    if (free_.size() < min_free) return StreamId::allocate();
    std::swap(free_[static_cast<std::size_t>(random.below(free_.size()))], free_.back());
    const StreamId stream = free_.back();
    free_.pop_back();
    return stream;
  }
  void release(StreamId stream) {
    const std::lock_guard lock(mutex_);
    free_.push_back(stream);
  }

 private:
  static constexpr std::size_t min_free = 8;  // so that acquire() does not always return the same ones

  std::array<StreamId, 4> shared_;
  std::mutex mutex_;
  std::vector<StreamId> free_;  // guarded by mutex_
};

}  // namespace cox::stress
