#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/handle/biased_shared_ptr.hpp>
#include <coxswain/runtime/launch/cube_dim.hpp>
#include <coxswain/servers/cuda/compile/cuda_kernel_options.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cox {

struct Location;

namespace detail {
class KernelDefinition;
struct LoadedKernel;
}  // namespace detail

/// A kernel of the CUDA server: source, image or function, and the cube dimensions it runs with. Copying is
/// inexpensive; copies share the compiled code. Any thread. Create it once and keep it: prepared code is found through
/// the object. Another object with the same source finds it only through a hash of the whole source.
///
/// Compiled and loaded code stays in the process: it is never unloaded. A compilation or load that has failed is not
/// tried again.
class CudaKernel {
 public:
  /// Returns the CUfunction of the kernel for the current context; null if there is none.
  using Resolver = std::function<void*()>;

  /// CUDA C++, compiled by NVRTC for each architecture when it is first needed. `name` is the name of an extern "C"
  /// function, or a C++ name expression if the options say so.
  [[nodiscard]] static CudaKernel from_source(std::string name, CubeDim cube_dim, std::string source,
                                              CudaKernelOptions options = {});
  /// The function `name` in PTX text, a cubin or a fatbin.
  [[nodiscard]] static CudaKernel from_image(std::string name, CubeDim cube_dim, std::vector<std::byte> image,
                                             CudaKernelOptions options = {});
  /// Copies the image; otherwise as above.
  [[nodiscard]] static CudaKernel from_image(std::string name, CubeDim cube_dim, std::span<const std::byte> image,
                                             CudaKernelOptions options = {}) {
    return from_image(std::move(name), cube_dim, std::vector<std::byte>(image.begin(), image.end()),
                      std::move(options));
  }
  /// A function of the embedding program: see global_kernel.hpp for `__global__` functions. `resolver` is called once
  /// for each device, on the thread that first launches the kernel there. What it throws becomes the failure of the
  /// launch.
  [[nodiscard]] static CudaKernel from_function(std::string name, CubeDim cube_dim, Resolver resolver,
                                                CudaKernelOptions options = {});

  [[nodiscard]] const std::string& name() const noexcept;
  /// The name, with static storage: for traces and fault reports.
  [[nodiscard]] const char* label() const noexcept;
  /// Threads of a block.
  [[nodiscard]] const CubeDim& cube_dim() const noexcept { return cube_dim_; }
  [[nodiscard]] const CudaKernelOptions& options() const noexcept;
  /// The same kernel and the same compiled code, with other cube dimensions.
  [[nodiscard]] CudaKernel with_cube_dim(CubeDim cube_dim) const {
    CudaKernel other = *this;
    other.cube_dim_ = cube_dim;
    return other;
  }

  /// Compiles the kernel into the cache on disk, for devices of each of these compute capabilities. prepare() takes it
  /// from there, in this process and others, also on other machines: see docs/kernels.md (settings
  /// compilation.cache_folder, compilation.cache). What is in the cache is not compiled again. Needs NVRTC, but neither
  /// a GPU nor a driver. Any thread; blocks. Does nothing for an image or a function.
  ///
  /// Throws LaunchError Compilation if the kernel does not compile, there is no NVRTC, or the options name folders or
  /// files (such kernels are not cached); Error if the cache is switched off or cannot be written.
  void precompile(const std::vector<ComputeCapability>& capabilities) const;

  /// Compiles the kernel and loads it on the device, on the calling thread; blocks for that. Other threads that prepare
  /// or launch the same kernel in the meantime wait. If the kernel is prepared already, the call costs an atomic load.
  /// Every launch calls this first; call it earlier to warm up. Does nothing while the device is not open. A failure is
  /// stored and becomes the failure of the launch.
  void prepare(DeviceId device) const noexcept;

  /// The result of prepare(); null if it was not called since the device was opened. Valid as long as any copy of the
  /// kernel exists. For the device thread.
  [[nodiscard]] const detail::LoadedKernel* loaded(std::uint16_t device_index) const noexcept;
  /// The result of prepare(), for a launch. Throws LaunchError: if prepare() has failed, with that failure as its
  /// cause, and of the same kind if the failure is a LaunchError; NullFunction if the kernel has not been prepared. For
  /// the device thread.
  [[nodiscard]] const detail::LoadedKernel& require_loaded(const Location& location, std::source_location site) const;

 private:
  CudaKernel(detail::BiasedSharedPtr<detail::KernelDefinition> definition, CubeDim cube_dim) noexcept;

  detail::BiasedSharedPtr<detail::KernelDefinition> definition_;
  CubeDim cube_dim_;
};

}  // namespace cox
