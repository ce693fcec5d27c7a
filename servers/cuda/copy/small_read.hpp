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

/// A copy of a few bytes from a device to page-locked memory, and its end, which the words that it writes tell of: they
/// are there two microseconds before the event behind it is (H200: 4.6 us after the call, the event 6.9 us). So each
/// word is first given a value that is hardly ever read, and who waits looks for another. What has that very value is
/// seen by the event. The GPU writes a word whole: NCCL's protocol LL stands on that, too. begin() and set_end_event()
/// on the device thread, then any thread.
class SmallRead final : public DeviceEvent {
 public:
  static constexpr std::size_t max_size = 64;             ///< bytes: few enough to look at again and again
  static constexpr std::uint32_t sentinel = 0x7FA5'C3E1;  ///< NaN as F32, its upper half NaN as F16 and BF16

  /// Whether so many bytes that stand one behind the other can be read like this.
  [[nodiscard]] static bool can_read(CUdeviceptr address, std::size_t size) noexcept {
    return size != 0 && size <= max_size && address % word_size(size) == 0;
  }
  /// Of `size` bytes, into the first of the slot's memory, for as long as this lives.
  SmallRead(SmallReadSlots::Slot slot, std::size_t size) noexcept
      : slot_(std::move(slot)), destination_(slot_->memory.span().first(size)) {}

  /// Queues the copy. Throws CudaError.
  void begin(CUdeviceptr address, CUstream stream);
  /// The event behind the copy, and nothing else in between.
  void set_end_event(std::shared_ptr<CudaEvent> event) noexcept { event_ = std::move(event); }
  /// The slot's memory, for whoever keeps it until the copy is over. Nobody else has this.
  [[nodiscard]] Bytes abandon() noexcept {
    const std::unique_ptr<SmallReadSlot> slot(slot_.release());
    return std::move(slot->memory);
  }

  // As DeviceEvent says.
  [[nodiscard]] bool reached() noexcept override;
  void wait() noexcept override;
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline) noexcept override;
  void notify(UniqueFunction<void()> function) override { event_->notify(std::move(function)); }

  /// What was read. After reached().
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
