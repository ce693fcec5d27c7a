#pragma once

#include <cstdint>

namespace cox {

enum class ExecutionMode : std::uint8_t {
  Checked,    ///< Access beyond a buffer is caught and fails the launch.
  Validate,   ///< As Checked, for kernels that are meant to run unchecked.
  Unchecked,  ///< Access beyond a buffer is undefined behaviour.
};

}  // namespace cox
