#pragma once

#include <coxswain/device_handle/base/visibility.hpp>
#include <coxswain/device_handle/queue/platform.hpp>

#include <atomic>
#include <cstdint>

namespace cox::detail {

/// A reserve of references to an object: they are already part of its reference count, but have not been handed out.
/// For an object whose references are handed out on one thread and dropped on another, again and again. If each
/// reference were counted when it is handed out, the cache line of the count would move back and forth between the two
/// threads.
///
/// Any number of threads may take references from one reserve concurrently. The first of them owns a part of the
/// reserve and takes from that part without an atomic read-modify-write, which would wait for all earlier stores of the
/// thread, such as closures written to cache lines that another processor holds.
class BiasedRefCount {
 public:
  BiasedRefCount() noexcept = default;
  BiasedRefCount(BiasedRefCount&& other) noexcept : left_(other.release_all()) {}
  BiasedRefCount& operator=(BiasedRefCount&&) = delete;
  ~BiasedRefCount() = default;

  /// Takes one reference from the reserve for the caller to hand out. `references` is the reference count of the
  /// object; it is modified only once per batch of references. Precondition: the caller holds a reference.
  void add_reference(std::atomic<std::uint32_t>& references) noexcept {
    // All operations are relaxed: the caller's own reference keeps the object alive, and only the sum of the counts
    // matters.
    if (owner_.load(std::memory_order_relaxed) != this_thread_ && !become_owner()) [[unlikely]]
      return take_shared(references);
    std::uint16_t left = owned_.load(std::memory_order_relaxed);
    if (left <= prefetch_threshold) [[unlikely]]
      left = refill(left, references);
    owned_.store(static_cast<std::uint16_t>(left - 1), std::memory_order_relaxed);
  }
  /// Empties the reserve and returns how many references it had. The caller must subtract them from the reference
  /// count. No other thread may take references at the same time.
  [[nodiscard]] std::uint16_t release_all() noexcept {
    const auto left =
        static_cast<std::uint16_t>(left_.load(std::memory_order_relaxed) + owned_.load(std::memory_order_relaxed));
    left_.store(0, std::memory_order_relaxed);
    owned_.store(0, std::memory_order_relaxed);
    owner_.store(no_owner, std::memory_order_relaxed);
    return left;
  }
  /// No thread may take references from either reserve at the same time.
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

  // `left`: references left in the part of the owner, which is the calling thread. Other threads have written the cache
  // line of the count since the last refill, so it is prefetched shortly before it is needed.
  std::uint16_t refill(std::uint16_t left, std::atomic<std::uint32_t>& references) noexcept {
    if (left != 0) {
      SystemPlatform::prefetch_for_write(&references);
      return left;
    }
    // References in left_ (from a move, or counted by other threads) become part of the new batch, so only the
    // difference is added to the count. It is computed modulo 2^32, since left_ may exceed batch_size.
    references.fetch_add(std::uint32_t{batch_size} - left_.exchange(0, std::memory_order_relaxed),
                         std::memory_order_relaxed);
    return batch_size;
  }

  // Precondition: the calling thread is not the owner. Returns whether it is the owner now.
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
      references.fetch_sub(batch_size - 1, std::memory_order_relaxed);  // another thread has added a batch already
  }

  // Number of the calling thread. Unique, unless 2^32 numbers have been assigned since.
  COX_VISIBILITY_DEFAULT static inline constinit thread_local std::uint32_t this_thread_ = without_number;
  COX_VISIBILITY_DEFAULT static inline std::atomic<std::uint32_t> numbers_{0};

  std::atomic<std::uint32_t> owner_{no_owner};
  std::atomic<std::uint16_t> owned_{0};  // while there is an owner, only the owner writes it
  std::atomic<std::uint16_t> left_{0};   // for the other threads; also holds references from a move
};

}  // namespace cox::detail
