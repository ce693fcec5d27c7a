#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/runtime/async/device_event.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/event/cuda_event.hpp>
#include <coxswain/servers/cuda/memory/small_read_slots.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace cox::detail {

/// A copy of a few bytes from a device to page-locked memory. Its completion is detected by polling the words that it
/// writes: they arrive two microseconds before the event after the copy is reached (H200: 4.6 us after the call, the
/// event after 6.9 us). Each word is first set to a value that data rarely contains, and the waiting thread polls for a
/// different value. If the data contains this very value, the event detects completion. The GPU writes each word
/// atomically; the protocol LL of NCCL relies on this, too. begin() and set_end_event() on the device thread, then any
/// thread.
class SmallRead final : public DeviceEvent {
 public:
  static constexpr std::size_t max_size = 64;             ///< bytes: few enough to poll
  static constexpr std::uint32_t sentinel = 0x7FA5'C3E1;  ///< NaN as F32, its upper half NaN as F16 and BF16

  /// Whether `size` contiguous bytes at `address` can be read with a SmallRead.
  [[nodiscard]] static bool can_read(CUdeviceptr address, std::size_t size) noexcept {
    return size != 0 && size <= max_size && address % word_size(size) == 0;
  }
  /// Reads `size` bytes into the start of the slot's memory. Holds the slot until it is destroyed.
  SmallRead(SmallReadSlots::Slot slot, std::size_t size) noexcept
      : slot_(std::move(slot)), destination_(slot_->memory.span().first(size)) {}

  /// Enqueues the copy. Throws CudaError.
  void begin(CUdeviceptr address, CUstream stream);
  /// Sets the event that is recorded directly after the copy.
  void set_end_event(std::shared_ptr<CudaEvent> event) noexcept { event_ = std::move(event); }
  /// Passes the slot's memory to the caller, which keeps it until the copy has completed. No other thread may refer to
  /// this object.
  [[nodiscard]] Bytes abandon() noexcept {
    const std::unique_ptr<SmallReadSlot> slot(slot_.release());
    return std::move(slot->memory);
  }

  // See DeviceEvent.
  [[nodiscard]] bool reached() noexcept override;
  void wait() noexcept override;
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline) noexcept override;
  void notify(UniqueFunction<void()> function) override { event_->notify(std::move(function)); }

  /// Copies the bytes that were read. After reached().
  void copy_to(std::span<std::byte> bytes) const noexcept { std::ranges::copy(destination_, bytes.begin()); }

 private:
  [[nodiscard]] static constexpr std::size_t word_size(std::size_t size) noexcept {
    return size % 4 == 0 ? 4 : size % 2 == 0 ? 2 : 1;
  }
  [[nodiscard]] bool has_arrived() noexcept;

  SmallReadSlots::Slot slot_;
  const std::span<std::byte> destination_;
  std::shared_ptr<CudaEvent> event_;
};

}  // namespace cox::detail
