#pragma once

#include <string>
#include <vector>

namespace cox::perf {

/// Runs the program `words.front()`, looked up in PATH, with the other words as its arguments. Blocks until the program
/// has ended, and returns the numbers that it printed. Throws std::runtime_error if the program cannot be started or
/// does not exit with code 0. Precondition: `words` is not empty.
std::vector<double> numbers_from_program(std::vector<std::string> words);

/// Runs this program in a new process with `arguments`. Blocks until that process has ended, and returns the numbers
/// that it printed. Throws std::runtime_error if it cannot be started or does not exit with code 0.
std::vector<double> numbers_from_fresh_process(const std::vector<std::string>& arguments);

}  // namespace cox::perf
