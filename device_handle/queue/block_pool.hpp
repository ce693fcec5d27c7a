#pragma once

#include <coxswain/device_handle/base/visibility.hpp>

#include <atomic>
#include <cstddef>
#include <memory>

namespace cox {

/// Recycles blocks of one size for one device thread: the segments of its lanes and the closures too large for them.
/// Any thread allocates; only the device thread recycles. The order of free blocks does not matter, so they are kept in
/// a moodycamel queue. Keeps at most `retained_limit` free blocks, and `resting_limit` after trim(). No function
/// blocks.
class COX_VISIBILITY_DEFAULT BlockPool {
 public:
  static constexpr std::size_t block_bytes = 65 * 64;  ///< one cache line of header and 64 of cells
  static constexpr std::size_t block_alignment = 64;
  static constexpr std::ptrdiff_t retained_limit = 512;  ///< 2 MiB: the memory of a full queue of 16,384 small closures
  static constexpr std::ptrdiff_t resting_limit = 64;    ///< 260 KiB

  BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  /// Returns a block of `block_bytes`; its content is undefined. Throws std::bad_alloc.
  [[nodiscard]] void* allocate();

  /// Returns a block to the pool. Device thread only, or the thread that has taken over its role.
  void recycle(void* block) noexcept;

  /// After this, recycle() frees the block and may be called from any thread.
  void seal() noexcept { sealed_.store(true, std::memory_order_release); }

  /// Bytes of all blocks, in use and free.
  [[nodiscard]] std::size_t bytes() const noexcept { return allocated_.load(std::memory_order_relaxed) * block_bytes; }

  /// Frees the free blocks in excess of `resting_limit`. Device thread.
  void trim() noexcept;

  /// Frees a block instead of recycling it. Any thread.
  void free(void* block) noexcept;

 private:
  struct FreeBlocks;

  const std::unique_ptr<FreeBlocks> free_;
  std::atomic<bool> sealed_{false};
  std::atomic<std::ptrdiff_t> retained_{0};  // relaxed: a bound, publishes no data
  std::atomic<std::size_t> allocated_{0};    // relaxed: a statistic
};

}  // namespace cox
