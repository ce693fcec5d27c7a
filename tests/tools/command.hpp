#pragma once

#include <coxswain/tools/cox/command_line.hpp>

#include <sstream>
#include <string>
#include <vector>

namespace cox::tools {

/// One call of the program: how it ended and what it said.
struct Command {
  ExitCode code;
  std::string out;
  std::string err;

  [[nodiscard]] static Command run(const std::vector<std::string>& arguments) {
    std::ostringstream out;
    std::ostringstream err;
    const ExitCode code = tools::run(arguments, out, err);
    return {code, out.str(), err.str()};
  }
};

}  // namespace cox::tools
