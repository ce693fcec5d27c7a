#pragma once

#include <coxswain/tools/cox/stress/sequence.hpp>
#include <coxswain/tools/cox/stress/ticket.hpp>
#include <coxswain/tools/cox/stress/truth.hpp>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace cox::stress {

/// The launches and uploads of one stream that fail on purpose, or for what one has left, and whose failure has yet to
/// surface, in order.
using StreamFaults = std::vector<Sequence>;

/// A file that there is none of, which an upload fails with on purpose. Its name is the tag.
[[nodiscard]] std::string missing_file(std::uint32_t client, Sequence sequence);

/// Whether a launch or an upload has failed on purpose for that client and sequence, or anything for what it has left.
[[nodiscard]] bool is_of_fault(const std::exception_ptr& failure, std::uint32_t client, Sequence sequence);

/// The read or sync with that ticket threw `error`, or nothing (null). Checks that it is ServerError Unhealthy with
/// exactly the failures of `faults`, first cause first (L12), or nothing if there are none.
void check_surfaced(Truth& truth, const Ticket& ticket, const StreamFaults& faults, const std::exception_ptr& error);

}  // namespace cox::stress
