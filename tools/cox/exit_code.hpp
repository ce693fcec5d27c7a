#pragma once

#include <coxswain/servers/cuda/driver/gpu_fault.hpp>

namespace cox::tools {

/// Exit code of the subcommands of cox. `cox run` returns the exit code of its program.
enum class ExitCode : int {
  Ok = 0,            ///< The command completed and all checks passed.
  Violation = 1,     ///< A law was violated, a check failed, or the result could not be written.
  BadArguments = 2,  ///< The arguments or the settings are not valid.
  NoDevice = 3,      ///< A device, or the necessary memory or thread, is not available.
  GpuFault = 86,     ///< A fault of a kernel or GPU has made all GPUs of the process unusable.
  WorldGone = 87,    ///< The process cannot continue without its world, which must be started again.
};
static_assert(static_cast<int>(ExitCode::GpuFault) == gpu_fault_exit_code);

/// ExitCode::GpuFault after a GPU fault, else `code`.
[[nodiscard]] inline int exit_code_of_process(int code) noexcept {
#if COX_HAS_CUDA
  return exit_code(code);
#else
  return code;
#endif
}

}  // namespace cox::tools
