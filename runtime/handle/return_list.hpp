#pragma once

#include <atomic>
#include <cstdint>

namespace cox::detail {

/// Objects on their way back to the one thread that hands them out. Pushing neither blocks nor allocates, so that the
/// last reference can be dropped anywhere. A T has a `T* next_returned`, which is the list's meanwhile.
template <class T>
class ReturnList {
 public:
  /// Any thread. False, once closed: the object stays the caller's.
  [[nodiscard]] bool push(T& object) noexcept {
    T* newest = newest_.load(std::memory_order_relaxed);
    do {
      if (newest == closed()) return false;
      object.next_returned = newest;
      // Release pairs with the acquire in take_all and close: the link, and what the last owner did, are visible there.
    } while (!newest_.compare_exchange_weak(newest, &object, std::memory_order_release, std::memory_order_relaxed));
    return true;
  }
  /// All that came back so far, linked by next_returned. One thread only.
  [[nodiscard]] T* take_all() noexcept {
    // All are taken at once: an object cannot come back in between, so that no push is misled.
    if (newest_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    return newest_.exchange(nullptr, std::memory_order_acquire);
  }
  /// As take_all; from now on nothing is accepted. Once.
  [[nodiscard]] T* close() noexcept { return newest_.exchange(closed(), std::memory_order_acquire); }

 private:
  // The newest object of a list that takes no more.
  [[nodiscard]] static T* closed() noexcept { return reinterpret_cast<T*>(~std::uintptr_t{0}); }

  std::atomic<T*> newest_{nullptr};
};

}  // namespace cox::detail
