#pragma once

#include <coxswain/perf/harness/options.hpp>
#include <coxswain/perf/trace/allocation_trace.hpp>

#include <vector>

namespace cox::perf {

/// Figure F10 on memory of the first GPU: replays of the traces and, if `everything`, what allocating and freeing
/// costs. Returns the exit code as Suite::run.
int measure_cuda_memory(const Options& options, const std::vector<AllocationTrace>& traces, bool everything);

}  // namespace cox::perf
