#include <coxswain/runtime/memory/device_buffer.hpp>

#include <cstdint>

namespace cox {
namespace {

// The newest buffer of a list that takes no more.
DeviceBuffer* closed() noexcept { return reinterpret_cast<DeviceBuffer*>(~std::uintptr_t{0}); }

}  // namespace

bool ReturnedBuffers::push(DeviceBuffer& buffer) noexcept {
  DeviceBuffer* newest = newest_.load(std::memory_order_relaxed);
  do {
    if (newest == closed()) return false;
    buffer.next_returned = newest;
    // Release pairs with the acquire in take_all and close: the link, and what the last owner did, are visible there.
  } while (!newest_.compare_exchange_weak(newest, &buffer, std::memory_order_release, std::memory_order_relaxed));
  return true;
}

DeviceBuffer* ReturnedBuffers::take_all() noexcept {
  // All are taken at once: a buffer cannot come back in between, so that no push is misled.
  if (newest_.load(std::memory_order_relaxed) == nullptr) return nullptr;
  return newest_.exchange(nullptr, std::memory_order_acquire);
}

DeviceBuffer* ReturnedBuffers::close() noexcept { return newest_.exchange(closed(), std::memory_order_acquire); }

}  // namespace cox
