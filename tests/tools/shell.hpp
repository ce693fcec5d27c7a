#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <stdexcept>
#include <string>

namespace cox::tools {

/// How a shell command that runs the program cox has ended.
struct Shell {
  int code;            ///< as a shell says it: 128 + the signal that ended it
  std::string output;  ///< standard output and error

  /// Runs `script` by /bin/sh, where $COX is the program.
  [[nodiscard]] static Shell run(const std::string& script) {
    const std::string line = "exec 2>&1; COX='" COX_PROGRAM "'\n" + script;
    std::FILE* const pipe = ::popen(line.c_str(), "r");
    if (pipe == nullptr) throw std::runtime_error("cannot start a shell");
    Shell program{};
    for (int letter = std::fgetc(pipe); letter != EOF; letter = std::fgetc(pipe))
      program.output += static_cast<char>(letter);
    const int status = ::pclose(pipe);
    program.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return program;
  }
};

}  // namespace cox::tools
