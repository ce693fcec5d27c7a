#pragma once

#include <string>

namespace cox::perf {

/// The properties of the machine that the measurements depend on. Identifies neither the host nor its owner.
struct Machine {
  unsigned cores = 0;          ///< cores this process may run on
  bool invariant_tsc = false;  ///< the time stamp counter has a constant rate and can be the system clock
};

Machine this_machine();

/// One line: "16 cores, invariant TSC, g++ 12.2.0".
std::string describe(const Machine& machine);

}  // namespace cox::perf
