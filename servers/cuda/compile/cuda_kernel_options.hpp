#pragma once

#include <coxswain/servers/cuda/compile/kernel_parameter.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cox {

/// A header that a kernel's source includes by that name; nothing of the kind need be on disk.
struct CudaHeader {
  std::string name;
  std::string content;
};

/// How a kernel is compiled and launched.
struct CudaKernelOptions {
  /// For NVRTC, beside what it is given anyway: the device's architecture, --std=c++20, --generate-line-info,
  /// --device-as-default-execution-space, --no-source-include and the CUDA toolkit's include folders. One option is one
  /// string.
  std::vector<std::string> compile_options{};
  std::vector<CudaHeader> headers{};
  /// The kernel's name is a C++ name expression, "scale<float>" or "my::scale", not the name of an extern "C" function.
  bool name_expression = false;
  /// The kernel's own signature. Absent: all buffers as pointers, all tensor maps, a pointer to the dynamic words of
  /// the metadata if there are any, and one struct by value of the static words (the scalars) if there are any.
  std::optional<std::vector<KernelParameter>> parameters{};
  std::size_t dynamic_shared_memory = 0;  ///< bytes, beside what the kernel declares
  /// Cubes of a cluster along each axis; all 0: none, or what the kernel itself declares.
  std::array<std::uint32_t, 3> cluster_dim{};
  bool cooperative = false;          ///< all cubes run at the same time and may meet
  bool programmatic_launch = false;  ///< may start before the stream's work before it has ended
};

}  // namespace cox
