#pragma once

#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/collectives/sequencer/open_communicators.hpp>

#include <optional>
#include <string>

namespace cox::detail {

/// Whether operations would wait for each other in a cycle if this numbered submission was added. An operation waits
/// for the dependencies of its ranks' submissions, and for the earlier operations of its communicator. Returns a text
/// that names the operations of the cycle in order; nothing if there is no cycle.
[[nodiscard]] std::optional<std::string> find_wait_cycle(const OpenCommunicators& communicators,
                                                         const CollectiveSubmission& closing);

}  // namespace cox::detail
