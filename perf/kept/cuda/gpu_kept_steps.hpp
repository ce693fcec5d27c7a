#pragma once

#include <coxswain/perf/harness/options.hpp>

#include <cstddef>
#include <vector>

namespace cox::perf {

/// The cases of perf_kept on the first GPU, and on the first two, with these sizes of state. Blocks. Returns the exit
/// code of the program.
[[nodiscard]] int measure_gpu_kept(const Options& options, const std::vector<std::size_t>& sizes);

}  // namespace cox::perf
