#pragma once

#include <coxswain/tools/cox/exit_code.hpp>

#include <ostream>
#include <string>
#include <vector>

namespace cox::tools {

/// Runs cox in this process, with `arguments` (without the program name). Writes results to `out`, error messages and
/// progress to `err`. `cox bench` and `cox stress` end early on SIGINT, SIGTERM and SIGHUP; `cox run` forwards these
/// and other signals to its program. Blocks until the command has completed.
[[nodiscard]] ExitCode run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace cox::tools
