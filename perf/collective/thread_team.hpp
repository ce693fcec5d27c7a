#pragma once

#include <barrier>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace cox::perf {

/// Threads that wait at a barrier for what to do: what one would write by hand instead of devices and streams.
class ThreadTeam {
 public:
  explicit ThreadTeam(std::size_t count) : size_(count), barrier_(static_cast<std::ptrdiff_t>(count) + 1) {
    for (std::size_t i = 0; i < count; ++i) threads_.emplace_back([this, i] { run(i); });
  }
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam() {
    job_ = nullptr;
    barrier_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Calls `job(i)` on thread i of all; returns when all have.
  void operator()(std::function<void(std::size_t)> job) {
    job_ = std::move(job);
    barrier_.arrive_and_wait();
    barrier_.arrive_and_wait();
  }

 private:
  void run(std::size_t index) {
    for (;;) {
      barrier_.arrive_and_wait();
      if (!job_) return;
      job_(index);
      barrier_.arrive_and_wait();
    }
  }

  std::size_t size_;
  std::barrier<> barrier_;
  std::function<void(std::size_t)> job_;
  std::vector<std::thread> threads_;
};

}  // namespace cox::perf
