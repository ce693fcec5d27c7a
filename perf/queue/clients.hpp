#pragma once

#include <coxswain/device_handle/queue/platform.hpp>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace cox::perf {

/// Threads that start together. `body(index)` runs on each once start() was called; the destructor joins.
class Clients {
 public:
  Clients(unsigned count, std::function<void(unsigned)> body) : body_(std::move(body)) {
    for (unsigned i = 0; i < count; ++i) {
      threads_.emplace_back([this, i] {
        ready_.fetch_add(1, std::memory_order_release);
        ready_.notify_one();
        go_.wait(false, std::memory_order_acquire);
        body_(i);
      });
    }
    for (unsigned seen = 0; (seen = ready_.load(std::memory_order_acquire)) != count;) ready_.wait(seen);
  }
  ~Clients() {
    start();
    for (auto& thread : threads_) thread.join();
  }

  void start() {
    go_.store(true, std::memory_order_release);
    go_.notify_all();
  }

 private:
  std::function<void(unsigned)> body_;
  std::atomic<unsigned> ready_{0};
  std::atomic<bool> go_{false};
  std::vector<std::thread> threads_;
};

}  // namespace cox::perf
