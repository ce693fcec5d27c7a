#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

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

  BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  /// A block of `block_bytes`, its content undefined. Throws std::bad_alloc.
  [[nodiscard]] void* allocate();

  /// Device thread only (or whoever took over its role).
  void recycle(void* block) noexcept;

  /// From now on recycle() frees, and may be called from any thread.
  void seal() noexcept { sealed_.store(true, std::memory_order_release); }

  /// Bytes of all blocks, in use and free.
  [[nodiscard]] std::size_t bytes() const noexcept { return allocated_.load(std::memory_order_relaxed) * block_bytes; }

  /// Frees what is more than `resting_limit`. Device thread.
  void trim() noexcept;

  /// Frees a block instead of keeping it. Any thread.
  void free(void* block) noexcept;

 private:
  struct FreeBlocks;

  const std::unique_ptr<FreeBlocks> free_;
  std::atomic<bool> sealed_{false};
  std::atomic<std::ptrdiff_t> retained_{0};  // relaxed: a bound, not a hand-over
  std::atomic<std::size_t> allocated_{0};    // relaxed: a figure to show
};

}  // namespace cox
