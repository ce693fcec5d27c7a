#pragma once

#include <coxswain/servers/cuda/compile/kernel_parameter.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cox {

/// The compute capability of a device: {9, 0} for 9.0.
struct ComputeCapability {
  int major = 0;
  int minor = 0;
};

/// A header that a kernel's source includes by this name. No such file needs to be on disk.
struct CudaHeader {
  std::string name;
  std::string content;
};

/// How a kernel is compiled and launched.
struct CudaKernelOptions {
  /// Options for NVRTC, in addition to the defaults: the device's architecture, --std=c++20, --generate-line-info,
  /// --device-as-default-execution-space, --no-source-include and the CUDA toolkit's include folders. Each string is
  /// one option.
  std::vector<std::string> compile_options{};
  std::vector<CudaHeader> headers{};
  /// The kernel's name is a C++ name expression, "scale<float>" or "my::scale", not the name of an extern "C" function.
  bool name_expression = false;
  /// The kernel's own signature. If absent, the parameters are, in this order: all buffers as pointers, all tensor
  /// maps, a pointer to the dynamic words of the metadata if there are any, and one struct by value of the static words
  /// (the scalars) if there are any.
  std::optional<std::vector<KernelParameter>> parameters{};
  std::size_t dynamic_shared_memory = 0;  ///< bytes, in addition to what the kernel declares
  /// Cubes of a cluster along each axis. All 0: no clusters, or the cluster size that the kernel itself declares.
  std::array<std::uint32_t, 3> cluster_dim{};
  bool cooperative = false;          ///< all cubes run at the same time and may synchronize
  bool programmatic_launch = false;  ///< may start before earlier work of the stream has completed
};

}  // namespace cox
