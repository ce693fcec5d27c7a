#pragma once

#include <coxswain/runtime/base/device_properties.hpp>
#include <coxswain/runtime/memory/device_memory.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/stream/cuda_streams.hpp>

#include <cstddef>
#include <functional>
#include <memory>

namespace cox::detail {

/// The memory of a GPU, independent of the kind of storage that the driver provides. All functions as in DeviceMemory.
/// Device thread only.
class CudaMemory {
 public:
  using Buffer = std::unique_ptr<DeviceBuffer, ReleaseMemoryResource>;

  CudaMemory() = default;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  virtual ~CudaMemory() = default;

  [[nodiscard]] virtual Buffer allocate(const MemoryRequest& request) = 0;
  [[nodiscard]] virtual Buffer borrow(MemoryAddress address, std::size_t bytes,
                                      std::shared_ptr<BorrowedMemory> memory) = 0;
  [[nodiscard]] virtual std::shared_ptr<void> count_separate(std::size_t bytes, std::size_t reserved) = 0;
  [[nodiscard]] virtual bool has_borrowed() const noexcept = 0;
  using EndBorrowed = std::function<void(const StreamPositions& uses, const std::shared_ptr<BorrowedMemory>& memory)>;
  virtual void end_borrowed(const EndBorrowed& end) = 0;
  virtual void collect_returned() = 0;
  [[nodiscard]] virtual bool is_live(const DeviceBuffer& buffer) const noexcept = 0;
  virtual void cleanup() = 0;
  [[nodiscard]] virtual MemoryUsage usage() = 0;
  [[nodiscard]] virtual MemoryReport report() = 0;
  [[nodiscard]] virtual const std::shared_ptr<const UsageGauge>& gauge() const noexcept = 0;
  [[nodiscard]] virtual bool install(const MemoryPoolLayout& layout) = 0;
};

/// Opens memory that is mapped piece by piece, if the driver supports that and the setting cuda.mapped_memory allows
/// it. Otherwise memory of plain allocations: a free allocation is returned to the driver only as a whole, and the
/// driver then waits for all running kernels. Throws CudaError, std::bad_alloc.
[[nodiscard]] std::unique_ptr<CudaMemory> open_cuda_memory(const CudaStreams& streams,
                                                           const MemoryProperties& properties,
                                                           const std::shared_ptr<CudaContext>& context);

}  // namespace cox::detail
