#pragma once

#include <cstdint>

namespace cox {

/// How a host kernel reaches its buffers. A CUDA kernel runs in every mode as it was compiled: what it does beyond a
/// buffer is undefined behaviour, and may be a fault of the GPU.
enum class ExecutionMode : std::uint8_t {
  Checked,    ///< Access beyond a buffer is caught and fails the launch.
  Validate,   ///< As Checked, for kernels that are meant to run unchecked.
  Unchecked,  ///< Access beyond a buffer is undefined behaviour.
};

}  // namespace cox
