#pragma once

#include <coxswain/servers/cuda/compile/cuda_kernel_options.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace cox::detail {

/// Throws CudaError.
[[nodiscard]] ComputeCapability capability_of(const CudaContext& context);

/// Kernels that nvcc compiled when the library was built: fatbins that are part of the library. All have code for the
/// same architectures. Any thread.
struct EmbeddedKernels {
  struct Image {
    std::uint64_t source = 0;  ///< fnv1a() of what it was compiled from
    std::span<const std::byte> fatbin;
  };

  int toolkit = 0;                ///< version of nvcc, in the driver's format: 13000 is 13.0
  std::span<const int> cubins{};  ///< compute capabilities with machine code, ascending: 90 is 9.0
  int ptx = 0;                    ///< compute capability of the PTX
  std::span<const Image> images{};

  /// The peer kernels, see peer_kernels_source(). Without images if there was no nvcc.
  [[nodiscard]] static const EmbeddedKernels& of_peers() noexcept;

  /// Whether such a device can run the images with a driver of that version. Machine code needs the major version of
  /// the toolkit, or a later one; PTX needs the toolkit's version, since an older driver may not know its instructions.
  [[nodiscard]] bool run_on(ComputeCapability device, int driver_version) const noexcept;
  /// The image that was compiled from `source`; empty if there is none.
  [[nodiscard]] std::span<const std::byte> find(std::string_view source) const noexcept;
};

}  // namespace cox::detail
