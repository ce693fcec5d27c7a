#pragma once

#include <cstddef>

struct CUstream_st;  // what a CUstream and a cudaStream_t point to

namespace cox {

/// What a clique holds of its devices: their contexts, and what it needs beside NCCL.
class NcclDeviceResources {
 public:
  NcclDeviceResources() = default;
  NcclDeviceResources(const NcclDeviceResources&) = delete;
  NcclDeviceResources& operator=(const NcclDeviceResources&) = delete;
  virtual ~NcclDeviceResources() = default;

  /// What was launched beside NCCL and waits for other ranks ends, with whatever it has. Any thread; does not block.
  virtual void abort() noexcept = 0;
  /// A stream of the rank's device, and memory there that means nothing, of scratch_size bytes.
  [[nodiscard]] virtual CUstream_st* stream(std::size_t rank) const noexcept = 0;
  [[nodiscard]] virtual void* scratch(std::size_t rank) const noexcept = 0;
  /// Blocks until all that was launched on that stream has ended. Throws what has failed.
  virtual void synchronize(std::size_t rank) const = 0;

  static constexpr std::size_t scratch_size = 4096;
};

}  // namespace cox
