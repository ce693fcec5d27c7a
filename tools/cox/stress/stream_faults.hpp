#pragma once

#include <coxswain/tools/cox/stress/sequence.hpp>
#include <coxswain/tools/cox/stress/ticket.hpp>
#include <coxswain/tools/cox/stress/truth.hpp>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace cox::stress {

/// The operations of one stream that must fail and whose failures no call has reported yet, in order: launches and
/// uploads that fail on purpose, and uses of the memory that these poisoned.
using StreamFaults = std::vector<Sequence>;

/// The path of a file that does not exist. An upload from it fails on purpose. Its name is the tag.
[[nodiscard]] std::string missing_file(std::uint32_t client, Sequence sequence);

/// Whether `failure` is the injected failure of the launch or upload with that client and sequence, or has it as a
/// cause.
[[nodiscard]] bool is_of_fault(const std::exception_ptr& failure, std::uint32_t client, Sequence sequence);

/// The read or sync with that ticket threw `error`, or nothing (null). Checks that it is ServerError Unhealthy with
/// exactly the failures of `faults`, first cause first (L12), or nothing if there are none.
void check_surfaced(Truth& truth, const Ticket& ticket, const StreamFaults& faults, const std::exception_ptr& error);

}  // namespace cox::stress
