#pragma once

#include <coxswain/runtime/bytes/bytes.hpp>

#include <mutex>
#include <utility>
#include <vector>

namespace cox::detail {

/// Host memory that a stream's work uses up to one point. Given back by whoever knows first that the device has come
/// there: the device thread, or a client that has waited for it. Any thread.
class HeldBytes {
 public:
  /// Before anybody else knows of this.
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
