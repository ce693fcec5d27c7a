#pragma once

#include <coxswain/servers/cuda/compile/cuda_kernel_options.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace cox::detail {

struct Nvrtc;

/// What is compiled.
struct KernelSource {
  std::string text;             ///< CUDA C++
  std::string name_expression;  ///< of the kernel; empty: it is extern "C"
  std::vector<CudaHeader> headers;
  std::vector<std::string> options;
};

/// What comes of it.
struct CompiledKernel {
  std::vector<std::byte> image;  ///< cubin; PTX text with its 0 if the options ask for a virtual architecture
  std::string lowered_name;      ///< of the name expression; empty if there is none
};

/// "sm_80", "sm_90a": what NVRTC is to compile for. From 9.0 on with all that this very architecture has.
[[nodiscard]] std::string architecture_name(int major, int minor);

/// All that NVRTC is given for such a source.
[[nodiscard]] std::vector<std::string> all_options(const Nvrtc& nvrtc, const std::vector<std::string>& options,
                                                   const std::string& architecture);

/// Whether what comes of it depends on nothing but the source, NVRTC and the toolkit's headers: no option names a
/// folder or file.
[[nodiscard]] bool is_self_contained(const std::vector<std::string>& options);

/// Compiles on the calling thread, without a device. Throws LaunchError Compilation with NVRTC's log and the lines of
/// the source that it names.
[[nodiscard]] CompiledKernel compile(const Nvrtc& nvrtc, const KernelSource& source, const std::string& architecture);

}  // namespace cox::detail
