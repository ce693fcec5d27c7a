#pragma once

#include <coxswain/tests/fake_cuda/fake_cuda.hpp>

namespace cox::test {

/// Where the setting collectives.nccl names the library that stands in for NCCL (tests/fake_nccl), its operations
/// become kernels of the library that stands in for the CUDA driver, in which ranks meet. Called once, under the lock
/// of `fake`.
void prepare_nccl_stand_in(FakeCuda& fake);

}  // namespace cox::test
