#pragma once

#include <coxswain/tools/cox/exit_code.hpp>

#include <ostream>
#include <string>
#include <string_view>

namespace cox::tools {

/// Sends a request to the supervisor in the process with this id, and prints its answer; "0": the only supervisor of
/// this user. Returns Violation if there is none, or it does not answer, and writes why to `err`, as `command`. Throws
/// ArgumentError if the id is no number. Blocks for the answer, at most ten seconds.
[[nodiscard]] ExitCode query_supervisor(std::string_view command, std::string_view request, const std::string& process,
                                        std::ostream& out, std::ostream& err);

}  // namespace cox::tools
