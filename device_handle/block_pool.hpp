#pragma once

#include <coxswain/device_handle/detail/concurrentqueue.hpp>

#include <atomic>
#include <cstddef>
#include <new>

namespace cox {

/// Recycles blocks of one size for one device thread: the segments of its lanes and the closures too large for them.
/// Any thread takes; only the device thread gives back. In which order blocks come back does not matter, so the blocks
/// lie in a moodycamel queue. Keeps at most `retained_limit` free blocks, at rest `resting_limit`. Nothing blocks.
class BlockPool {
 public:
  static constexpr std::size_t block_bytes = 65 * 64;  ///< 64 cache lines beside one line of header
  static constexpr std::size_t block_alignment = 64;
  static constexpr std::ptrdiff_t retained_limit = 512;  ///< 2 MiB: what a full queue of 16,384 small closures takes
  static constexpr std::ptrdiff_t resting_limit = 64;    ///< 260 KiB

  BlockPool() : giver_(free_) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() {
    for (void* block = nullptr; free_.try_dequeue(block);) release(block);
  }

  /// A block of `block_bytes`, its content undefined. Throws std::bad_alloc.
  [[nodiscard]] void* take() {
    void* block = nullptr;
    if (free_.try_dequeue(block)) {
      retained_.fetch_sub(1, std::memory_order_relaxed);
      return block;
    }
    block = ::operator new(block_bytes, std::align_val_t{block_alignment});
    allocated_.fetch_add(1, std::memory_order_relaxed);
    return block;
  }

  /// Device thread only (or whoever took over its role).
  void give_back(void* block) noexcept {
    if (!sealed_.load(std::memory_order_acquire) && retained_.load(std::memory_order_relaxed) < retained_limit &&
        free_.enqueue(giver_, block)) {
      retained_.fetch_add(1, std::memory_order_relaxed);
    } else {
      release(block);
    }
  }

  /// From now on give_back() frees, and may be called from any thread.
  void seal() noexcept { sealed_.store(true, std::memory_order_release); }

  /// Bytes of all blocks, in use and free.
  [[nodiscard]] std::size_t bytes() const noexcept { return allocated_.load(std::memory_order_relaxed) * block_bytes; }

  /// Frees what is more than `resting_limit`. Device thread.
  void trim() noexcept {
    while (retained_.load(std::memory_order_relaxed) > resting_limit) {
      void* block = nullptr;
      if (!free_.try_dequeue(block)) return;
      retained_.fetch_sub(1, std::memory_order_relaxed);
      release(block);
    }
  }

  /// Frees a block instead of keeping it. Any thread.
  void release(void* block) noexcept {
    ::operator delete(block, std::align_val_t{block_alignment});
    allocated_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  moodycamel::ConcurrentQueue<void*> free_{retained_limit};
  moodycamel::ProducerToken giver_;
  std::atomic<bool> sealed_{false};
  std::atomic<std::ptrdiff_t> retained_{0};  // relaxed: a bound, not a hand-over
  std::atomic<std::size_t> allocated_{0};    // relaxed: a figure to show
};

}  // namespace cox
