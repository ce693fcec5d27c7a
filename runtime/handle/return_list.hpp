#pragma once

#include <atomic>
#include <cstdint>

namespace cox::detail {

/// A lock-free multi-producer list that returns objects to the one thread that hands them out. Pushing neither blocks
/// nor allocates, so the last reference to an object may be dropped on any thread. T has a member `T* next_returned`,
/// which the list uses while the object is in it.
template <class T>
class ReturnList {
 public:
  /// Any thread. Returns false if the list is closed; the caller then keeps the object.
  [[nodiscard]] bool push(T& object) noexcept {
    T* newest = newest_.load(std::memory_order_relaxed);
    do {
      if (newest == closed()) return false;
      object.next_returned = newest;
      // Release pairs with the acquire in take_all and close: the link, and the last owner's accesses, are visible
      // there.
    } while (!newest_.compare_exchange_weak(newest, &object, std::memory_order_release, std::memory_order_relaxed));
    return true;
  }
  /// Removes all objects from the list and returns them, newest first, linked by next_returned. Null if there are none.
  /// One thread only.
  [[nodiscard]] T* take_all() noexcept {
    // The whole list is removed by one exchange, never a single object, so that push has no ABA problem.
    if (newest_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    return newest_.exchange(nullptr, std::memory_order_acquire);
  }
  /// Like take_all, and closes the list: later pushes fail. Call it once.
  [[nodiscard]] T* close() noexcept { return newest_.exchange(closed(), std::memory_order_acquire); }

 private:
  // The value of newest_ when the list is closed.
  [[nodiscard]] static T* closed() noexcept { return reinterpret_cast<T*>(~std::uintptr_t{0}); }

  std::atomic<T*> newest_{nullptr};
};

}  // namespace cox::detail
