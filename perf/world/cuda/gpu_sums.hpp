#pragma once

#include <coxswain/perf/harness/options.hpp>
#include <coxswain/perf/harness/suite.hpp>

namespace cox::perf {

/// Adds the case of all_reduce over two GPUs: two processes with a GPU each, one process with both, and NCCL alone in
/// both layouts. Without two GPUs and NCCL, prints in one line why it adds nothing.
void add_gpu_sums(Suite& suite, const Options& options);

}  // namespace cox::perf
