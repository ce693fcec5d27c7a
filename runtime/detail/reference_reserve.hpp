#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

namespace cox::detail {

/// References that have been counted and not given out yet. For who gives references out on one thread that are dropped
/// on another, again and again: were each counted where it is given out, the line with the count would go back and
/// forth between the two threads' caches. Any number of threads may take from one reserve at a time. The first of them
/// owns a part of it, from which it takes without an atomic operation: that would wait for all that the thread has
/// written before, such as closures into lines that another processor has.
class ReferenceReserve {
 public:
  ReferenceReserve() noexcept = default;
  ReferenceReserve(ReferenceReserve&& other) noexcept : left_(other.give_up()) {}
  ReferenceReserve& operator=(ReferenceReserve&&) = delete;
  ~ReferenceReserve() = default;

  /// One more reference may be given out; `references`, which counts them all, is touched once for many. Who calls this
  /// holds one himself.
  void take(std::atomic<std::uint32_t>& references) noexcept {
    if (!take_owned()) [[unlikely]]
      take_slowly(references);
  }
  /// The same if that needs nothing but the calling thread's own part. Returns whether it did.
  bool take_owned() noexcept {
    // Relaxed, all: who holds a reference holds the object; the counts only have to add up.
    const std::uint64_t owned = owned_.load(std::memory_order_relaxed);
    if (owned - this_thread_ - 1 >= most) [[unlikely]]
      return false;  // another thread's, nobody's, or none is left
    owned_.store(owned - 1, std::memory_order_relaxed);
    return true;
  }
  /// How many were left, which are the caller's to count out. While nobody else takes.
  [[nodiscard]] std::uint32_t give_up() noexcept {
    const std::uint32_t left = left_.load(std::memory_order_relaxed) +
                               static_cast<std::uint32_t>(owned_.load(std::memory_order_relaxed) & most);
    left_.store(0, std::memory_order_relaxed);
    owned_.store(nobodys, std::memory_order_relaxed);
    return left;
  }
  /// While nobody takes from either.
  void swap(ReferenceReserve& other) noexcept {
    const std::uint32_t left = other.give_up();
    other.left_.store(give_up(), std::memory_order_relaxed);
    left_.store(left, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t counted_at_once = 1024;
  static constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint64_t nobodys = 0;
  static constexpr std::uint64_t without_number = most << 32U;

  [[gnu::noinline]] void take_slowly(std::atomic<std::uint32_t>& references) noexcept {
    if (owned_.load(std::memory_order_relaxed) != this_thread_ && !become_owner()) return take_shared(references);
    // With what came from elsewhere, it is as many again: modulo 2^32, where that was more.
    references.fetch_add(counted_at_once - left_.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
    owned_.store(this_thread_ + counted_at_once - 1, std::memory_order_relaxed);
  }

  // Not for who owns it already. Returns whether the calling thread owns it now.
  bool become_owner() noexcept {
    std::uint64_t owned = owned_.load(std::memory_order_relaxed);
    if (owned != nobodys) return false;
    while (this_thread_ == without_number || this_thread_ == nobodys)
      this_thread_ = std::uint64_t{numbers_.fetch_add(1, std::memory_order_relaxed) + 1} << 32U;
    return owned_.compare_exchange_strong(owned, this_thread_, std::memory_order_relaxed);
  }

  void take_shared(std::atomic<std::uint32_t>& references) noexcept {
    std::uint32_t left = left_.load(std::memory_order_relaxed);
    while (left != 0)
      if (left_.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) return;
    references.fetch_add(counted_at_once, std::memory_order_relaxed);
    if (!left_.compare_exchange_strong(left, counted_at_once - 1, std::memory_order_relaxed))
      references.fetch_sub(counted_at_once - 1, std::memory_order_relaxed);  // another thread's are there already
  }

  // A number in the upper half. Not that of another thread, unless 2^32 have been asked since.
  static inline constinit thread_local std::uint64_t this_thread_ = without_number;
  static inline std::atomic<std::uint32_t> numbers_{0};

  // Upper half: the thread that owns it, which alone writes it as long as there is one. Lower half: how many are left.
  std::atomic<std::uint64_t> owned_{nobodys};
  std::atomic<std::uint32_t> left_{0};  // for the others; and what came with a move
};

}  // namespace cox::detail
