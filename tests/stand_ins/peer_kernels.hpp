#pragma once

#include <coxswain/tests/fake_cuda/fake_cuda.hpp>

namespace cox::test {

/// The kernels of small collectives (servers/cuda/peer/peer_kernels_source.cpp) become functions, which go the same
/// way: through the memory of the ranks, by the epochs there. Called under the lock of `fake`.
void prepare_peer_kernels(FakeCuda& fake);

}  // namespace cox::test
