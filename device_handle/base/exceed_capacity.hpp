#pragma once

#include <coxswain/device_handle/base/visibility.hpp>

namespace cox::detail {

/// While an object of this class exists, submissions of its thread do not wait for room in a device's queue: they
/// exceed its capacity, or throw CallError QueueFull under QueuePolicy::Fail. For calls made while a lock is held: the
/// device thread that would make room may be waiting for the same lock, which would be a deadlock. The caller waits for
/// room before it takes the lock, so a queue exceeds its capacity by at most one call of each thread.
class ExceedCapacity {
 public:
  ExceedCapacity() noexcept { ++count_; }
  ExceedCapacity(const ExceedCapacity&) = delete;
  ExceedCapacity& operator=(const ExceedCapacity&) = delete;
  ~ExceedCapacity() { --count_; }

  /// Whether the calling thread has one.
  [[nodiscard]] static bool active() noexcept { return count_ != 0; }

 private:
  COX_VISIBILITY_DEFAULT static inline constinit thread_local unsigned count_ = 0;
};

}  // namespace cox::detail
