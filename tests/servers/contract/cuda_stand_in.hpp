#pragma once

#include <string>

namespace cox::test {

/// Where the setting cuda.driver names the library that stands in for the CUDA driver (tests/fake_cuda), it learns what
/// the contract's kernels do: the first call does that, once in the process. Returns what the stand-in lacks here;
/// empty if nothing, or with the driver itself. Any thread.
[[nodiscard]] const std::string& prepare_cuda_stand_in();

}  // namespace cox::test
