#pragma once

#include <coxswain/collectives/discovery/world_place.hpp>

namespace cox {

/// Finds out which process of which world this is. The first of these that gives the number of the process and the
/// count is taken: options, COX_WORLD_PROCESS and COX_WORLD_PROCESSES, torchrun, PMIx, Slurm; none: a world of one. The
/// rendezvous is that of the options, COX_WORLD, or that of the same launcher. Reads the environment, which no other
/// thread may change during the call. Throws ConfigError, which names the variables and their values, if values are
/// malformed, incomplete or contradict each other; StoreError if PMIx cannot be used.
[[nodiscard]] WorldPlace discover(const WorldOptions& options = {});

}  // namespace cox
