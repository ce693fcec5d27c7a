#pragma once

#include <coxswain/runtime/handle/memory_usage.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace cox {

/// Counts memory of a device that does not come from its pools, such as kept memory: each part until its count is
/// destroyed, which any thread may do. Other functions: device thread only.
class SeparateMemory {
 public:
  /// Counts one allocation of `bytes` bytes, for which the device has given `reserved` bytes. Throws std::bad_alloc.
  [[nodiscard]] std::shared_ptr<void> count(std::size_t bytes, std::size_t reserved) {
    auto counted = std::make_shared<Count>(totals_, bytes, reserved);
    peak_bytes_ = std::max(peak_bytes_, totals_->bytes.load(std::memory_order_relaxed));
    peak_reserved_ = std::max(peak_reserved_, totals_->reserved.load(std::memory_order_relaxed));
    return counted;
  }
  /// Bytes taken from the device.
  [[nodiscard]] std::size_t reserved() const noexcept { return totals_->reserved.load(std::memory_order_relaxed); }
  /// Each value is exact; different values may be from different moments while another thread destroys a count.
  [[nodiscard]] MemoryUsage usage() const noexcept {
    const std::size_t bytes = totals_->bytes.load(std::memory_order_relaxed);
    const std::size_t reserved = std::max(totals_->reserved.load(std::memory_order_relaxed), bytes);
    return {.number_allocs = totals_->allocations.load(std::memory_order_relaxed),
            .bytes_in_use = bytes,
            .bytes_padding = reserved - bytes,
            .bytes_reserved = reserved,
            .peak_bytes_in_use = peak_bytes_,
            .peak_bytes_reserved = peak_reserved_};
  }

 private:
  struct Totals {
    std::atomic<std::uint64_t> allocations{0};
    std::atomic<std::size_t> bytes{0};
    std::atomic<std::size_t> reserved{0};
  };
  struct Count {
    Count(std::shared_ptr<Totals> to, std::size_t its_bytes, std::size_t its_reserved) noexcept
        : totals(std::move(to)), bytes(its_bytes), reserved(its_reserved) {
      totals->allocations.fetch_add(1, std::memory_order_relaxed);
      totals->bytes.fetch_add(bytes, std::memory_order_relaxed);
      totals->reserved.fetch_add(reserved, std::memory_order_relaxed);
    }
    Count(const Count&) = delete;
    Count& operator=(const Count&) = delete;
    ~Count() {
      totals->allocations.fetch_sub(1, std::memory_order_relaxed);
      totals->bytes.fetch_sub(bytes, std::memory_order_relaxed);
      totals->reserved.fetch_sub(reserved, std::memory_order_relaxed);
    }
    const std::shared_ptr<Totals> totals;
    const std::size_t bytes;
    const std::size_t reserved;
  };

  const std::shared_ptr<Totals> totals_ = std::make_shared<Totals>();  // counts may outlive this object
  std::size_t peak_bytes_ = 0;
  std::size_t peak_reserved_ = 0;
};

}  // namespace cox
