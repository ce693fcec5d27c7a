#pragma once

#include <coxswain/runtime/memory/memory_storage.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>

#include <cstddef>
#include <memory>

namespace cox::detail {

/// Memory of a GPU, in regions: for drivers that cannot map memory. Device thread only.
class PlainStorage {
 public:
  explicit PlainStorage(std::shared_ptr<CudaContext> context) noexcept : context_(std::move(context)) {}

  /// Bytes of the regions that small allocations share.
  static constexpr std::size_t region_size = std::size_t{32} << 20U;

  // See RegionStorage.
  [[nodiscard]] static constexpr std::size_t granularity() noexcept { return std::size_t{2} << 20U; }
  [[nodiscard]] MemoryAddress allocate(std::size_t bytes) noexcept;
  void free(MemoryAddress address, std::size_t bytes) noexcept;

 private:
  std::shared_ptr<CudaContext> context_;
};

static_assert(RegionStorage<PlainStorage>);

}  // namespace cox::detail
