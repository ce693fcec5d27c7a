#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/handle/biased_shared_ptr.hpp>
#include <coxswain/runtime/launch/cube_dim.hpp>
#include <coxswain/servers/cuda/compile/cuda_kernel_options.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cox {

namespace detail {
class KernelDefinition;
struct LoadedKernel;
}  // namespace detail

/// A kernel of the CUDA server: source, image or function, and the cube it runs with. Cheap to copy; copies share what
/// it is compiled to. Any thread. Make it once and keep it: what is prepared is found again through the object, and
/// through a hash of its whole source only if the object is another.
///
/// Compiled and loaded code stays in the process: it is never unloaded, and what has failed once is not tried again.
class CudaKernel {
 public:
  /// Gives the CUfunction of the kernel for the context that is current; null if there is none.
  using Resolver = std::function<void*()>;

  /// CUDA C++, compiled by NVRTC for each architecture when it is first needed. `name` is that of an extern "C"
  /// function, or a C++ name expression if the options say so.
  [[nodiscard]] static CudaKernel from_source(std::string name, CubeDim cube_dim, std::string source,
                                              CudaKernelOptions options = {});
  /// The function of that name in PTX text, a cubin or a fatbin.
  [[nodiscard]] static CudaKernel from_image(std::string name, CubeDim cube_dim, std::vector<std::byte> image,
                                             CudaKernelOptions options = {});
  /// The same of a copy.
  [[nodiscard]] static CudaKernel from_image(std::string name, CubeDim cube_dim, std::span<const std::byte> image,
                                             CudaKernelOptions options = {}) {
    return from_image(std::move(name), cube_dim, std::vector<std::byte>(image.begin(), image.end()),
                      std::move(options));
  }
  /// A function that the embedding program has: see global_kernel.hpp for __global__ functions. `resolver` is called
  /// once for each device, on the thread that first launches there; what it throws is the launch's failure.
  [[nodiscard]] static CudaKernel from_function(std::string name, CubeDim cube_dim, Resolver resolver,
                                                CudaKernelOptions options = {});

  [[nodiscard]] const std::string& name() const noexcept;
  /// The name, with static storage: for traces and fault reports.
  [[nodiscard]] const char* label() const noexcept;
  /// Threads of a block.
  [[nodiscard]] const CubeDim& cube_dim() const noexcept { return cube_dim_; }
  [[nodiscard]] const CudaKernelOptions& options() const noexcept;
  /// The same kernel, and the same compiled code, with other cubes.
  [[nodiscard]] CudaKernel with_cube_dim(CubeDim cube_dim) const {
    CudaKernel other = *this;
    other.cube_dim_ = cube_dim;
    return other;
  }

  /// Compiles the kernel and loads it on the device, on the calling thread, unless that is done: then it costs an
  /// atomic load. Others that ask for the same meanwhile wait. Every launch does this first; call it before to warm up.
  /// Does nothing while the device is not open. A failure is kept and becomes the launch's.
  void prepare(DeviceId device) const noexcept;

  /// For the device thread: what prepare has come to; null if it was not called since the device was opened. Lives as
  /// long as any copy of the kernel.
  [[nodiscard]] const detail::LoadedKernel* loaded(std::uint16_t device_index) const noexcept;

 private:
  CudaKernel(detail::BiasedSharedPtr<detail::KernelDefinition> definition, CubeDim cube_dim) noexcept;

  detail::BiasedSharedPtr<detail::KernelDefinition> definition_;
  CubeDim cube_dim_;
};

}  // namespace cox
