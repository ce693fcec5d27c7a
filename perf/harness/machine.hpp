#pragma once

#include <string>

namespace cox::perf {

/// What of the machine the figures depend on. Names neither the host nor its owner.
struct Machine {
  unsigned cores = 0;          ///< cores this process may run on
  bool invariant_tsc = false;  ///< a time stamp counter that ticks evenly and is the system's clock
};

Machine this_machine();

/// One line: "16 cores, invariant TSC, g++ 12.2.0".
std::string describe(const Machine& machine);

}  // namespace cox::perf
