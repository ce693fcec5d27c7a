#pragma once

#include <coxswain/tests/fake_cuda/fake_cuda.hpp>

namespace cox::test {

/// The kernels of kept memory (servers/cuda/memory/kept_mark.cpp, kept_sum.cpp) become functions. Where one traps, the
/// GPUs fault. Called under the lock of `fake`.
void prepare_kept_kernels(FakeCuda& fake);

}  // namespace cox::test
