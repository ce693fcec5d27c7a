#pragma once

#include <coxswain/runtime/handle/memory_failure.hpp>

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

namespace cox {

/// Whether the contents of one allocation are good, or poisoned: the operation that should have written them failed
/// (L14).
///
/// It is read and written where operations run, in the order in which the device thread accepted them: an operation
/// that writes the allocation runs alone, and one that reads it behind those that wrote it (AccessTracker). So what it
/// finds does not depend on when a failure becomes known. Other threads may look at any time.
class Poison {
 public:
  using Contents = MemoryFailure::Contents;

  [[nodiscard]] bool is_set() const noexcept {
    return set_.load(std::memory_order_acquire);  // pairs with the release in set: who sees it may ask for the cause
  }
  /// Nothing: the contents are good.
  [[nodiscard]] std::optional<MemoryFailure> failure() const {
    if (!is_set()) return std::nullopt;
    const std::lock_guard lock(mutex_);
    if (failure_.cause == nullptr) return std::nullopt;
    return failure_;
  }
  /// An operation that should have written the allocation has failed. The first cause stays.
  void set(const std::exception_ptr& cause, Contents contents) noexcept {
    const std::lock_guard lock(mutex_);
    if (failure_.cause == nullptr) {
      failure_ = {cause, contents};
    } else if (contents == Contents::Undefined) {
      failure_.contents = contents;
    }
    set_.store(true, std::memory_order_release);
  }
  /// An operation has written a part of it, which does not make it good.
  void note_partial_write() noexcept {
    if (!is_set()) return;
    const std::lock_guard lock(mutex_);
    failure_.contents = Contents::Undefined;
  }
  /// All of it has been written, or the user accepts it as it is.
  void clear() noexcept {
    if (!is_set()) return;
    const std::exception_ptr last = [this] {  // let go without the lock
      const std::lock_guard lock(mutex_);
      set_.store(false, std::memory_order_release);
      return std::exchange(failure_.cause, nullptr);
    }();
  }

 private:
  std::atomic<bool> set_{false};
  mutable std::mutex mutex_;
  MemoryFailure failure_;  // guarded by mutex_
};

}  // namespace cox
