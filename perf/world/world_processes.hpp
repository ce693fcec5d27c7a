#pragma once

#include <coxswain/perf/harness/suite.hpp>

#include <cstdint>
#include <functional>

namespace cox::perf {

/// Where a process is in the world that a sample starts.
struct PlaceOfSample {
  std::uint16_t process = 0;
  std::uint16_t processes = 1;
};

/// Runs `body` in `processes` processes of one world, and returns what it returned in process `own`, which is this one.
/// The others run this program again, with the same arguments, and so come to this call. Before `body` is called, the
/// variables of the world are set (COX_WORLD and others), so that World::join() and discover() find it. For samples
/// that run in a fresh process: it sets an alarm, which ends the process if the sample takes longer than 30 s. The
/// other processes end with this one. Throws what `body` throws, and std::runtime_error if another process fails or
/// cannot be started.
Sample sample_of_world(std::uint16_t processes, std::uint16_t own, const std::function<Sample(PlaceOfSample)>& body);

}  // namespace cox::perf
