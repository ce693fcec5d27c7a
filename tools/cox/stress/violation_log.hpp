#pragma once

#include <coxswain/tools/cox/stress/violation.hpp>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <vector>

namespace cox::stress {

/// The violations of a run, in the order in which they were seen. Any thread.
class ViolationLog {
 public:
  /// So many violations are kept; those after the first are mostly its consequences.
  static constexpr std::size_t max_violations = 16;

  void add(Violation violation) {
    const std::lock_guard lock(mutex_);
    if (violations_.size() < max_violations) violations_.push_back(std::move(violation));
    any_.store(true, std::memory_order_relaxed);
  }
  /// Relaxed: only a hint to stop; the violations themselves are guarded by the mutex.
  [[nodiscard]] bool any() const noexcept { return any_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::vector<Violation> all() const {
    const std::lock_guard lock(mutex_);
    return violations_;
  }

 private:
  std::atomic<bool> any_{false};
  mutable std::mutex mutex_;
  std::vector<Violation> violations_;  // guarded by mutex_
};

}  // namespace cox::stress
