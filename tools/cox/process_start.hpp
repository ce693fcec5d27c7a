#pragma once

#include <string>

namespace cox::tools {

/// Prepares the process of a command-line program; once, first in main():
/// - Writing to a pipe that no process reads, or beyond the limit of a file's size, fails instead of ending the
/// process.
///   Programs that it starts do not inherit this.
/// - Standard input, output and error that are closed stay unusable, but no file opened later gets their numbers.
/// - Threads get stacks of at least 1 MiB, whatever `ulimit -s` says, and the main thread's limit is raised to that.
/// Returns why the program cannot work, in one line; nothing if it can.
[[nodiscard]] std::string prepare_process() noexcept;

}  // namespace cox::tools
