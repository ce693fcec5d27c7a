#pragma once

#include <cstddef>
#include <memory>

struct CUstream_st;  // what a CUstream and a cudaStream_t point to

namespace cox {

/// The device resources of an NcclCommunicator: the contexts of its devices, and what it needs there in addition to
/// NCCL.
class NcclDeviceResources {
 public:
  NcclDeviceResources() = default;
  NcclDeviceResources(const NcclDeviceResources&) = delete;
  NcclDeviceResources& operator=(const NcclDeviceResources&) = delete;
  virtual ~NcclDeviceResources() = default;

  /// Makes kernels end that were not launched by NCCL and wait for other ranks. Their results are then undefined. Any
  /// thread; does not block.
  virtual void abort() noexcept = 0;
  /// A stream of the rank's device, and scratch_size bytes of its memory whose contents do not matter.
  [[nodiscard]] virtual CUstream_st* stream(std::size_t rank) const noexcept = 0;
  [[nodiscard]] virtual void* scratch(std::size_t rank) const noexcept = 0;
  /// As long as the result is held, the rank's device is the current one of the calling thread. Throws std::bad_alloc.
  [[nodiscard]] virtual std::shared_ptr<void> make_current(std::size_t rank) const = 0;
  /// Whether all work on stream(rank) has completed. Does not block. Throws the error of failed work.
  [[nodiscard]] virtual bool is_idle(std::size_t rank) const = 0;
  /// Blocks until all work on stream(rank) has completed. Throws the error of failed work.
  virtual void synchronize(std::size_t rank) const = 0;

  static constexpr std::size_t scratch_size = 4096;
};

}  // namespace cox
