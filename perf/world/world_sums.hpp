#pragma once

#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/world/world_processes.hpp>

#include <cstddef>

namespace cox::perf {

/// all_reduce of f32 over two host devices, which belong to this process, or one to each process of a world. A thread
/// for each local device.

/// Each operation is waited for: median and 99th percentile in microseconds, of the first device of this process.
Sample sums_one_at_a_time(PlaceOfSample place, std::size_t bytes, std::size_t times);
/// `operations` are submitted before the first wait: microseconds for each operation.
Sample sums_in_a_stream(PlaceOfSample place, std::size_t bytes, std::size_t operations, std::size_t times);

}  // namespace cox::perf
