#pragma once

#include <coxswain/device_handle/platform.hpp>

#include <mutex>

namespace cox::detail {

/// A mutex for sections that take less than a microsecond, which several device threads come to at the same time: who
/// finds it locked looks again for a while before it sleeps, since to be woken takes far longer than the wait. Lockable
/// as the standard has it. Any thread.
class AdaptiveMutex {
 public:
  void lock() {
    for (int looks = 0; looks < most_looks; ++looks) {
      if (mutex_.try_lock()) return;
      SystemPlatform::pause();
    }
    mutex_.lock();
  }
  [[nodiscard]] bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  static constexpr int most_looks = 100;  // a few microseconds

  std::mutex mutex_;
};

}  // namespace cox::detail
