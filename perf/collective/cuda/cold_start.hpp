#pragma once

#include <coxswain/perf/harness/options.hpp>

#include <cstddef>

namespace cox::perf {

/// Measures the first all_reduce of a process between the first `ranks` GPUs, which are open already, beside the first
/// one of NCCL alone. Each sample is a process of its own. Returns the exit code.
int measure_cold_starts(Options options, std::size_t ranks);

}  // namespace cox::perf
