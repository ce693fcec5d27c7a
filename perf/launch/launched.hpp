#pragma once

#include <coxswain/perf/cuda/open_gpu.hpp>
#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace cox::perf {

/// What a launch is given.
struct LaunchShape {
  unsigned buffers = 0;
  unsigned scalars = 0;  ///< of 64 bits
};

/// An empty kernel and what it is given, to be launched through the client and through the driver.
class Launched {
 public:
  Launched(const OpenGpu& gpu, LaunchShape shape);

  [[nodiscard]] const OpenGpu& gpu() const noexcept { return gpu_; }
  [[nodiscard]] KernelArguments arguments() const;
  void launch(KernelArguments arguments) const {
    gpu_.client().launch(kernel_, CubeCount::single(), std::move(arguments));
  }
  void launch() const { launch(arguments()); }
  /// cuLaunchKernelEx with the same parameters. The context is current.
  void launch_raw(CUstream stream) const;

 private:
  const OpenGpu& gpu_;
  LaunchShape shape_;
  CudaKernel kernel_;
  std::vector<Handle> buffers_;
  std::vector<std::uint64_t> words_;  // addresses, then scalars
  CUfunction function_ = nullptr;
};

}  // namespace cox::perf
