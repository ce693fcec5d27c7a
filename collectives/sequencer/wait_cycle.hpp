#pragma once

#include <coxswain/collectives/sequencer/open_communicators.hpp>
#include <coxswain/collectives/sequencer/queued_submission.hpp>

#include <optional>
#include <string>

namespace cox::detail {

/// Whether operations would wait for each other in a ring if this submission, a numbered one, was added: each for one
/// that a rank of it depends on, or for one before it on its communicator. The text names them in order; nothing if
/// not.
[[nodiscard]] std::optional<std::string> find_wait_cycle(const OpenCommunicators& communicators,
                                                         const QueuedSubmission& closing);

}  // namespace cox::detail
