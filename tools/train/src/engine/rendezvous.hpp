#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <stdexcept>

namespace train {

/// Where the ranks of an attempt meet, and learn that one of them has failed. Any thread.
class Rendezvous {
 public:
  explicit Rendezvous(std::size_t ranks) : ranks_(ranks) {}

  /// A rank has failed: no other one waits for it here.
  void fail() {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    changed_.notify_all();
  }
  /// Blocks until a rank has failed.
  void wait_for_failure() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return failed_; });
  }
  /// Blocks until every rank has called this as often as this one. Throws std::runtime_error if a rank has failed
  /// before.
  void meet() {
    std::unique_lock lock(mutex_);
    const std::size_t meeting = arrivals_++ / ranks_;
    if (arrivals_ % ranks_ == 0) changed_.notify_all();
    changed_.wait(lock, [&] { return failed_ || arrivals_ / ranks_ > meeting; });
    if (arrivals_ / ranks_ <= meeting) throw std::runtime_error("another rank has failed");
  }

 private:
  const std::size_t ranks_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::size_t arrivals_ = 0;
  bool failed_ = false;
};

}  // namespace train
