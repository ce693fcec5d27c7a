#pragma once

#include <coxswain/runtime/handle/memory_usage.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cox {

/// The memory usage of a device as its device thread last published it, for threads that must not wait for the device
/// thread. Each value is exact; different values may be from different moments.
class UsageGauge {
 public:
  /// Device thread only.
  void publish(const MemoryUsage& usage) noexcept {
    number_allocs_.store(usage.number_allocs, std::memory_order_relaxed);
    in_use_.store(usage.bytes_in_use, std::memory_order_relaxed);
    padding_.store(usage.bytes_padding, std::memory_order_relaxed);
    reserved_.store(usage.bytes_reserved, std::memory_order_relaxed);
    peak_in_use_.store(usage.peak_bytes_in_use, std::memory_order_relaxed);
    peak_reserved_.store(usage.peak_bytes_reserved, std::memory_order_relaxed);
  }
  /// Any thread.
  [[nodiscard]] MemoryUsage read() const noexcept {
    return {.number_allocs = number_allocs_.load(std::memory_order_relaxed),
            .bytes_in_use = in_use_.load(std::memory_order_relaxed),
            .bytes_padding = padding_.load(std::memory_order_relaxed),
            .bytes_reserved = reserved_.load(std::memory_order_relaxed),
            .peak_bytes_in_use = peak_in_use_.load(std::memory_order_relaxed),
            .peak_bytes_reserved = peak_reserved_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<std::uint64_t> number_allocs_{0};
  std::atomic<std::size_t> in_use_{0};
  std::atomic<std::size_t> padding_{0};
  std::atomic<std::size_t> reserved_{0};
  std::atomic<std::size_t> peak_in_use_{0};
  std::atomic<std::size_t> peak_reserved_{0};
};

}  // namespace cox
