#pragma once

#include <coxswain/servers/cuda/driver/gpu_fault.hpp>

namespace cox::tools {

/// What every subcommand of cox ends with. `cox run` ends with what its program ends with.
enum class ExitCode : int {
  Ok = 0,            ///< Everything was done, everything holds.
  Violation = 1,     ///< A law was broken, something is wrong, or the result could not be delivered.
  BadArguments = 2,  ///< What was asked for makes no sense.
  NoDevice = 3,      ///< A device, or the memory or a thread that is needed, cannot be had.
  GpuFault = 86,     ///< A kernel or a GPU has failed and taken all GPUs of the process.
};
static_assert(static_cast<int>(ExitCode::GpuFault) == gpu_fault_exit_code);

}  // namespace cox::tools
