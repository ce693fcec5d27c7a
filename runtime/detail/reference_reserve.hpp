#pragma once

#include <atomic>
#include <cstdint>

namespace cox::detail {

/// References that have been counted and not given out yet. For who gives references out on one thread that are dropped
/// on another, again and again: were each counted where it is given out, the line with the count would go back and
/// forth between the two threads' caches. Any number of threads may take from one reserve at a time.
class ReferenceReserve {
 public:
  ReferenceReserve() noexcept = default;
  ReferenceReserve(ReferenceReserve&& other) noexcept : left_(other.give_up()) {}
  ReferenceReserve& operator=(ReferenceReserve&&) = delete;
  ~ReferenceReserve() = default;

  /// One more reference may be given out; `references`, which counts them all, is touched once for many. Who calls this
  /// holds one himself.
  void take(std::atomic<std::uint32_t>& references) noexcept {
    // Relaxed: who holds a reference holds the object; the counts only have to add up.
    std::uint32_t left = left_.load(std::memory_order_relaxed);
    while (left != 0)
      if (left_.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) return;
    references.fetch_add(counted_at_once, std::memory_order_relaxed);
    left_.fetch_add(counted_at_once - 1, std::memory_order_relaxed);
  }
  /// How many were left, which are the caller's to count out. While nobody else takes.
  [[nodiscard]] std::uint32_t give_up() noexcept {
    const std::uint32_t left = left_.load(std::memory_order_relaxed);
    left_.store(0, std::memory_order_relaxed);
    return left;
  }
  /// While nobody takes from either.
  void swap(ReferenceReserve& other) noexcept {
    const std::uint32_t left = other.give_up();
    other.left_.store(give_up(), std::memory_order_relaxed);
    left_.store(left, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t counted_at_once = 32;

  std::atomic<std::uint32_t> left_{0};
};

}  // namespace cox::detail
