#pragma once

#include <coxswain/tests/fake_cuda/fake_cuda.hpp>

#include <string>

namespace cox::test {

/// The library that stands in for the CUDA driver (tests/fake_cuda), if the setting cuda.driver names it; null: the
/// driver itself is used, or there is none. Opens it. Any thread.
[[nodiscard]] FakeCuda* find_cuda_stand_in();

/// Shuts all devices down; then what the driver has not been given back, and which rules of it were broken, a line for
/// each. Empty: all is well.
[[nodiscard]] std::string undestroyed_objects(FakeCuda& fake);

}  // namespace cox::test
