#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/visibility.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace cox::detail {

/// Marks the calling thread as blocked in a future of `device` during the lifetime of this object, so that the library
/// can report what the thread waits for (L15). Costs a few stores to memory of the thread.
class BlockedWait {
 public:
  explicit BlockedWait(DeviceId device) noexcept : outer_(slot().device.load(std::memory_order_relaxed)) {
    Slot& own = slot();
    own.serial.store(own.serial.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    own.device.store(key_of(device), std::memory_order_release);  // pairs with the acquire in observe
  }
  BlockedWait(const BlockedWait&) = delete;
  BlockedWait& operator=(const BlockedWait&) = delete;
  ~BlockedWait() { slot().device.store(outer_, std::memory_order_release); }

  /// Finds the threads that are blocked now. Returns the devices of those waits that calls of observe() have found for
  /// at least `at_least`; a device may be in the result more than once. One thread at a time. Throws std::bad_alloc.
  [[nodiscard]] static std::vector<DeviceId> observe(std::chrono::steady_clock::time_point now,
                                                     std::chrono::nanoseconds at_least);

 private:
  struct Slot {
    std::atomic<std::uint64_t> serial{0};  // counts the waits
    std::atomic<std::uint32_t> device{0};  // waited for; 0: none
  };
  struct Registration;
  struct Seen;

  [[nodiscard]] static std::uint32_t key_of(DeviceId device) noexcept {
    return (std::uint32_t{device.type} << 16U | device.index) + 1;
  }
  [[nodiscard]] static DeviceId device_of(std::uint32_t key) noexcept {
    return {.type = static_cast<std::uint16_t>((key - 1) >> 16U), .index = static_cast<std::uint16_t>(key - 1)};
  }
  COX_VISIBILITY_DEFAULT [[nodiscard]] static Slot& slot() noexcept {
    thread_local Slot* own = nullptr;
    if (own == nullptr) own = &enroll();
    return *own;
  }
  [[nodiscard]] static Slot& enroll() noexcept;

  const std::uint32_t outer_;  // device of the enclosing wait; 0: none
};

}  // namespace cox::detail
