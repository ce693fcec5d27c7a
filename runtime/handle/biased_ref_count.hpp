#pragma once

#include <coxswain/device_handle/queue/platform.hpp>

#include <atomic>
#include <cstdint>

namespace cox::detail {

/// References that have been counted and not given out yet. For who gives references out on one thread that are dropped
/// on another, again and again: were each counted where it is given out, the line with the count would go back and
/// forth between the two threads' caches. Any number of threads may take from one reserve at a time. The first of them
/// owns a part of it, from which it takes without an atomic operation: that would wait for all that the thread has
/// written before, such as closures into lines that another processor has.
class BiasedRefCount {
 public:
  BiasedRefCount() noexcept = default;
  BiasedRefCount(BiasedRefCount&& other) noexcept : left_(other.release_all()) {}
  BiasedRefCount& operator=(BiasedRefCount&&) = delete;
  ~BiasedRefCount() = default;

  /// One more reference may be given out; `references`, which counts them all, is touched once for many. Who calls this
  /// holds one himself.
  void add_reference(std::atomic<std::uint32_t>& references) noexcept {
    // Relaxed, all: who holds a reference holds the object; the counts only have to add up.
    if (owner_.load(std::memory_order_relaxed) != this_thread_ && !become_owner()) [[unlikely]]
      return take_shared(references);
    std::uint16_t left = owned_.load(std::memory_order_relaxed);
    if (left <= prefetch_threshold) [[unlikely]]
      left = refill(left, references);
    owned_.store(static_cast<std::uint16_t>(left - 1), std::memory_order_relaxed);
  }
  /// How many were left, which are the caller's to count out. While nobody else takes.
  [[nodiscard]] std::uint16_t release_all() noexcept {
    const auto left =
        static_cast<std::uint16_t>(left_.load(std::memory_order_relaxed) + owned_.load(std::memory_order_relaxed));
    left_.store(0, std::memory_order_relaxed);
    owned_.store(0, std::memory_order_relaxed);
    owner_.store(no_owner, std::memory_order_relaxed);
    return left;
  }
  /// While nobody takes from either.
  void swap(BiasedRefCount& other) noexcept {
    const std::uint16_t left = other.release_all();
    other.left_.store(release_all(), std::memory_order_relaxed);
    left_.store(left, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint16_t batch_size = 256;
  static constexpr std::uint16_t prefetch_threshold = 2;
  static constexpr std::uint32_t no_owner = 0;
  static constexpr std::uint32_t without_number = ~std::uint32_t{0};

  // Who owns it has `left`. The line with the count, which others have written since, is fetched a little before it is
  // needed.
  std::uint16_t refill(std::uint16_t left, std::atomic<std::uint32_t>& references) noexcept {
    if (left != 0) {
      SystemPlatform::prefetch_for_write(&references);
      return left;
    }
    // With what came from elsewhere, it is as many again: modulo 2^32, where that was more.
    references.fetch_add(std::uint32_t{batch_size} - left_.exchange(0, std::memory_order_relaxed),
                         std::memory_order_relaxed);
    return batch_size;
  }

  // Not for who owns it already. Returns whether the calling thread owns it now.
  bool become_owner() noexcept {
    std::uint32_t owner = owner_.load(std::memory_order_relaxed);
    if (owner != no_owner) return false;
    while (this_thread_ == without_number || this_thread_ == no_owner)
      this_thread_ = numbers_.fetch_add(1, std::memory_order_relaxed) + 1;
    return owner_.compare_exchange_strong(owner, this_thread_, std::memory_order_relaxed);
  }

  void take_shared(std::atomic<std::uint32_t>& references) noexcept {
    std::uint16_t left = left_.load(std::memory_order_relaxed);
    while (left != 0)
      if (left_.compare_exchange_weak(left, static_cast<std::uint16_t>(left - 1), std::memory_order_relaxed)) return;
    references.fetch_add(batch_size, std::memory_order_relaxed);
    if (!left_.compare_exchange_strong(left, batch_size - 1, std::memory_order_relaxed))
      references.fetch_sub(batch_size - 1, std::memory_order_relaxed);  // another thread's are there already
  }

  // Not the number of another thread, unless 2^32 have been asked since.
  static inline constinit thread_local std::uint32_t this_thread_ = without_number;
  static inline std::atomic<std::uint32_t> numbers_{0};

  std::atomic<std::uint32_t> owner_{no_owner};
  std::atomic<std::uint16_t> owned_{0};  // the owner alone writes it, as long as there is one
  std::atomic<std::uint16_t> left_{0};   // for the others; and what came with a move
};

}  // namespace cox::detail
