#pragma once

#include <coxswain/tests/fuzz/options.hpp>

namespace cox::fuzz {

/// Runs programs on host devices. Returns the exit code.
[[nodiscard]] int run_on_host(const Options& options);
/// Runs programs on the CUDA server over the stand-ins for the driver, NVRTC and NCCL. Returns the exit code; throws
/// std::runtime_error where the build has none.
[[nodiscard]] int run_on_cuda(const Options& options);

}  // namespace cox::fuzz
