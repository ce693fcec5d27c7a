#pragma once

#include <coxswain/perf/harness/options.hpp>

#include <cstddef>

namespace cox::perf {

/// Measures collectives between the first `ranks` GPUs (0: all there are) beside NCCL alone, in one process with a
/// thread for each GPU. Returns the exit code.
int measure_cuda_collectives(const Options& options, std::size_t ranks);

}  // namespace cox::perf
