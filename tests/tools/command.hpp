#pragma once

#include <coxswain/tools/cox/command_line.hpp>

#include <algorithm>
#include <cstddef>
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

inline int code_of(const Command& command) { return static_cast<int>(command.code); }
inline std::ptrdiff_t lines_of(const std::string& text) { return std::ranges::count(text, '\n'); }

}  // namespace cox::tools
