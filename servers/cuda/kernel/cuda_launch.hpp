#pragma once

#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/launch/cube_count.hpp>
#include <coxswain/runtime/launch/cube_dim.hpp>
#include <coxswain/servers/cuda/compile/cuda_kernel_options.hpp>
#include <coxswain/servers/cuda/compile/loaded_kernel.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/stream/cuda_stream.hpp>
#include <coxswain/servers/cuda/stream/stream_queue.hpp>

#include <cstdint>
#include <source_location>

namespace cox::detail {

/// A validated launch, with its parameters as the driver receives them.
struct CudaLaunch {
  // Kept by the kernel.
  const LoadedKernel* loaded = nullptr;
  const CudaKernelOptions* options = nullptr;
  CubeDim dim;
  const char* name = nullptr;
  Location location;
  std::source_location site;
  /// Addresses, scalars and tensor maps, in the order of the kernel's parameters: see LoadedKernel::parameter_begins.
  SmallVector<std::uint64_t, 16> words = {};
  bool has_tensor_maps = false;
  Bytes metadata = {};               ///< copied to `metadata_address` before the launch
  CUdeviceptr metadata_address = 0;  ///< on the device

  /// Gives the launch to the driver, or adds it to the stream's batch of launches. Does nothing if `count` is empty.
  /// The driver's result for a batched launch may be known later: a failure is then added to the errors of `stream` at
  /// `sequence`, and by that time the memory that the kernel should have written is poisoned (L14). In a capture
  /// `stream` may have been destroyed already. Call once. Throws LaunchError, CudaError, std::bad_alloc.
  void issue(const CubeCount::Static& count, const IssueTarget& target, CudaStream& stream, std::uint64_t sequence);

  /// Whether the launch may be batched with others: it has neither attributes nor tensor maps, and no metadata, whose
  /// copy passes the earlier launches to the driver in any case.
  [[nodiscard]] bool can_batch() const noexcept {
    return !has_tensor_maps && metadata.empty() && !loaded->has_clusters && options->cluster_dim[0] == 0 &&
           !options->cooperative && !options->programmatic_launch;
  }

 private:
  [[nodiscard]] KernelLaunch kernel_launch(const CubeCount::Static& count, const PieceUses& uses) const noexcept;
  void issue_batched(StreamQueue& queue, const KernelLaunch& launch, CudaStream& stream, std::uint64_t sequence) const;
  void issue_single(CUstream stream, const KernelLaunch& launch) const;
};

}  // namespace cox::detail
