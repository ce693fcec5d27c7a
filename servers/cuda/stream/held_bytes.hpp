#pragma once

#include <coxswain/runtime/bytes/bytes.hpp>

#include <mutex>
#include <utility>
#include <vector>

namespace cox::detail {

/// Host memory that a stream's work uses up to one position. Released by the first thread that knows that the device
/// has reached the position: the device thread, or a client thread that has waited for it. Any thread.
class HeldBytes {
 public:
  /// Call before another thread has access to this object.
  void hold(std::vector<Bytes> bytes) noexcept { bytes_ = std::move(bytes); }
  /// Idempotent.
  void release() noexcept {
    std::vector<Bytes> given_back;  // destroyed without the lock
    {
      const std::lock_guard lock(mutex_);
      given_back.swap(bytes_);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<Bytes> bytes_;  // guarded by mutex_
};

}  // namespace cox::detail
