#pragma once

#include <coxswain/tools/cox/exit_code.hpp>

#include <ostream>
#include <string>
#include <vector>

namespace cox::tools {

/// The program cox without its process: does what `arguments` (without the program's name) say. Results go to `out`,
/// complaints and progress to `err`. While it stresses devices, SIGINT and SIGTERM end it early;
/// while it runs a program, they and others are passed on to it.
[[nodiscard]] ExitCode run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace cox::tools
