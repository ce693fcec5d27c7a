#pragma once

#include <coxswain/runtime/handle/memory_failure.hpp>

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

namespace cox {

/// Whether the contents of one allocation are good or poisoned, that is, the operation that should have written them
/// failed (L14).
///
/// Operations read and write it when they run, in the order in which the device thread accepted them: an operation that
/// writes the allocation runs exclusively, and one that reads it runs after those that wrote it (AccessTracker). So the
/// result does not depend on when a failure becomes known. Other threads may query it at any time.
class Poison {
 public:
  using Contents = MemoryFailure::Contents;

  [[nodiscard]] bool is_set() const noexcept {
    return set_.load(std::memory_order_acquire);  // pairs with the release in set: the cause is visible
  }
  /// std::nullopt if the contents are good.
  [[nodiscard]] std::optional<MemoryFailure> failure() const {
    if (!is_set()) return std::nullopt;
    const std::lock_guard lock(mutex_);
    if (failure_.cause == nullptr) return std::nullopt;
    return failure_;
  }
  /// Poisons the allocation: an operation that should have written it has failed. The first cause is kept.
  void set(const std::exception_ptr& cause, Contents contents) noexcept {
    const std::lock_guard lock(mutex_);
    if (failure_.cause == nullptr) {
      failure_ = {cause, contents};
    } else if (contents == Contents::Undefined) {
      failure_.contents = contents;
    }
    set_.store(true, std::memory_order_release);
  }
  /// An operation has written a part of the allocation. It stays poisoned; its contents are then Undefined.
  void note_partial_write() noexcept {
    if (!is_set()) return;
    const std::lock_guard lock(mutex_);
    failure_.contents = Contents::Undefined;
  }
  /// Makes the contents good: all of them have been written, or the user accepts them as they are.
  void clear() noexcept {
    if (!is_set()) return;
    const std::exception_ptr last = [this] {  // destroyed after the lock is released
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
