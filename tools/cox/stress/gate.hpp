#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace cox::stress {

/// A lock that separates the users of a resource from a thread that changes it. Once that thread waits in close(), no
/// new user enters. Any thread.
class Gate {
 public:
  /// Blocks while the gate is closed.
  void enter() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !closed_; });
    ++inside_;
  }
  /// Does not wait; false if the gate is closed.
  [[nodiscard]] bool try_enter() {
    const std::lock_guard lock(mutex_);
    if (!closed_) ++inside_;
    return !closed_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    if (--inside_ == 0) changed_.notify_all();
  }
  /// Blocks until no user is inside. One thread at a time.
  void close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    changed_.wait(lock, [this] { return inside_ == 0; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    closed_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t inside_ = 0;  // guarded by mutex_
  bool closed_ = false;     // guarded by mutex_
};

}  // namespace cox::stress
