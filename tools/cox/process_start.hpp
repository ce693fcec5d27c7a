#pragma once

#include <string>

namespace cox::tools {

/// Prepares the process of a command-line program. Call it once, first in main():
/// - Writing to a pipe without a reader, or beyond the file size limit, fails instead of ending the process. Programs
///   that this process starts do not inherit this.
/// - Standard input, output and error that are closed stay unusable, but no file that is opened later gets their
///   numbers.
/// - Threads get stacks of at least 1 MiB, even if `ulimit -s` is less. The main thread's limit is raised to 1 MiB.
/// Returns why the program cannot run, in one line; an empty text on success.
[[nodiscard]] std::string prepare_process() noexcept;

}  // namespace cox::tools
