#pragma once

#include <string>
#include <vector>

namespace cox::perf {

/// Runs the program that `words` begins with (looked up in PATH) with the others as its arguments, blocks until it
/// ends, and returns the numbers that it printed. Throws std::runtime_error if it cannot be started or ends with
/// another code than 0.
std::vector<double> numbers_from_program(std::vector<std::string> words);

/// Runs this program again with `arguments`, blocks until it ends, and returns the numbers that it printed.
/// Throws std::runtime_error if it cannot be started or ends with another code than 0.
std::vector<double> numbers_from_fresh_process(const std::vector<std::string>& arguments);

}  // namespace cox::perf
