#pragma once

#include <coxswain/runtime/memory/memory_storage.hpp>
#include <coxswain/runtime/memory/pinned_memory.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>

#include <cstddef>
#include <memory>

namespace cox::detail {

/// Alignment in bytes of every page-locked buffer.
inline constexpr std::size_t cuda_pinned_alignment = 64;

/// Page-locked host memory, in regions. All devices copy from and to it directly. One thread at a time.
class PinnedStorage {
 public:
  explicit PinnedStorage(std::shared_ptr<CudaContext> context) noexcept : context_(std::move(context)) {}

  /// The driver frees page-locked memory only when all running kernels have ended: never call free() on a device
  /// thread.
  static constexpr bool free_waits = true;
  /// Bytes of the regions that small allocations share. The driver takes half a millisecond per MiB to make a region.
  static constexpr std::size_t region_size = std::size_t{8} << 20U;

  // See RegionStorage.
  [[nodiscard]] static constexpr std::size_t granularity() noexcept { return std::size_t{64} << 10U; }
  [[nodiscard]] MemoryAddress allocate(std::size_t bytes) noexcept;
  void free(MemoryAddress address, std::size_t bytes) noexcept;

 private:
  std::shared_ptr<CudaContext> context_;
};

static_assert(RegionStorage<PinnedStorage>);

using CudaPinnedMemory = PinnedMemory<PinnedStorage>;

}  // namespace cox::detail
