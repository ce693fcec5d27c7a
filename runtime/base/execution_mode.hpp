#pragma once

#include <cstdint>

namespace cox {

/// How a host kernel accesses its buffers. The mode does not change a CUDA kernel, which runs as it was compiled: its
/// access beyond a buffer is undefined behaviour, and may be a GPU fault.
enum class ExecutionMode : std::uint8_t {
  Checked,    ///< Access beyond a buffer is caught and fails the launch.
  Validate,   ///< The same checks as Checked, for kernels that are meant to run unchecked.
  Unchecked,  ///< Access beyond a buffer is undefined behaviour.
};

}  // namespace cox
