#pragma once

#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/world/world_processes.hpp>

#include <cstddef>

namespace cox::perf {

/// What the order of a world costs, without devices: the processes submit one operation after the other, and wait until
/// each is released. Median and 99th percentile of the microseconds from a submission to its release in this process.
Sample release_one_at_a_time(PlaceOfSample place, std::size_t times);
/// The same with many operations submitted before the first wait: microseconds for each operation.
Sample release_in_a_stream(PlaceOfSample place, std::size_t operations, std::size_t times);
/// 64 bytes over loopback and back, between two threads that wait in recv(): median and 99th percentile in
/// microseconds.
Sample round_trip_of_bytes(std::size_t times);

}  // namespace cox::perf
