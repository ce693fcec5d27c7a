#pragma once

#include <coxswain/perf/queue/lane.hpp>
#include <coxswain/perf/queue/peers/promise_call.hpp>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace cox::perf {

/// Mutex, condition variable, deque of std::function: the first thing everyone writes.
class ConditionQueue {
 public:
  explicit ConditionQueue(const LaneOptions& options) : capacity_(options.capacity), thread_([this] { consume(); }) {}

  template <class F>
  void push(F&& f) {
    std::function<void()> closure(std::forward<F>(f));
    {
      std::unique_lock lock(mutex_);
      if (capacity_ != 0) space_.wait(lock, [this] { return queue_.size() < capacity_; });
      queue_.push_back(std::move(closure));
    }
    work_.notify_one();
  }

  template <class F>
  void call(F& f) {
    call_through_promise(*this, f);
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_one();
    thread_.join();
  }

 private:
  void consume() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      auto closure = std::move(queue_.front());
      queue_.pop_front();
      const bool half_empty = capacity_ != 0 && queue_.size() == capacity_ / 2;
      lock.unlock();
      if (half_empty) space_.notify_all();
      closure();
      closure = nullptr;
      lock.lock();
    }
  }

  const std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable space_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

static_assert(Lane<ConditionQueue>);

}  // namespace cox::perf
