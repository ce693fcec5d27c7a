#pragma once

#include <coxswain/tools/cox/stress/sequence.hpp>
#include <coxswain/tools/cox/stress/ticket.hpp>
#include <coxswain/tools/cox/stress/truth.hpp>

#include <exception>
#include <vector>

namespace cox::stress {

/// The launches of one stream that fail on purpose and whose failure has yet to surface, in order.
using StreamFaults = std::vector<Sequence>;

/// The read or sync with that ticket threw `error`, or nothing (null). Checks that it is ServerError Unhealthy with
/// exactly the failures of `faults`, first cause first (L12), or nothing if there are none.
void check_surfaced(Truth& truth, const Ticket& ticket, const StreamFaults& faults, const std::exception_ptr& error);

}  // namespace cox::stress
