#pragma once

#include <string>

namespace cox::tools {

/// The GPUs that only one process at a time may use (nvidia-smi -c EXCLUSIVE_PROCESS), such as "cuda:0, cuda:1"; empty
/// if there is none. A process of its own opens the driver, since a supervisor must not. Blocks for it. Throws
/// std::system_error. Call it before other threads are started.
[[nodiscard]] std::string exclusive_devices();

}  // namespace cox::tools
