#pragma once

#include <coxswain/servers/cuda/compile/cuda_kernel_options.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace cox::detail {

struct Nvrtc;

/// The input of a compilation.
struct KernelSource {
  std::string text;             ///< CUDA C++
  std::string name_expression;  ///< name expression of the kernel; empty: it is extern "C"
  std::vector<CudaHeader> headers;
  std::vector<std::string> options;
};

/// The result of a compilation.
struct CompiledKernel {
  std::vector<std::byte> image;  ///< cubin, or PTX text with its final 0 if the options ask for a virtual architecture
  std::string lowered_name;      ///< of the name expression; empty if there is none
};

/// The architecture that NVRTC compiles for: "sm_80", "sm_90a". From 9.0 on the suffix "a" enables the features that
/// are specific to that architecture.
[[nodiscard]] std::string architecture_name(int major, int minor);

/// The options on which the result depends: the defaults and `options`.
[[nodiscard]] std::vector<std::string> options_of_kernel(const Nvrtc& nvrtc, const std::vector<std::string>& options,
                                                         const std::string& architecture);
/// All options that NVRTC receives: those, and the toolkit's include folders, wherever they are on this machine.
[[nodiscard]] std::vector<std::string> all_options(const Nvrtc& nvrtc, const std::vector<std::string>& options,
                                                   const std::string& architecture);

/// Whether the result of a compilation depends only on the source, NVRTC and the toolkit's headers: no option names a
/// folder or file.
[[nodiscard]] bool is_self_contained(const std::vector<std::string>& options);

/// Compiles on the calling thread, without a device. Throws LaunchError Compilation with NVRTC's log and the source
/// lines that the log names.
[[nodiscard]] CompiledKernel compile(const Nvrtc& nvrtc, const KernelSource& source, const std::string& architecture);

}  // namespace cox::detail
