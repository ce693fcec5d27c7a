#pragma once

#include <coxswain/perf/harness/options.hpp>

#include <functional>
#include <string>

namespace cox::perf {

/// The main function of a program that measures GPUs: reads the command line (`more` as parse_options says, and
/// --require-gpu) and returns what `body` returns, or 1 after printing what it threw.
int gpu_program(int argc, char** argv, const std::string& about, const MoreOptions& more,
                const std::function<int(const Options&)>& body);

/// Calls `body` where there is a GPU. Else says in one line why there is nothing to measure, writes no rows where they
/// are asked for, and returns 0, or 3 if one is `required`.
int with_gpu(const Options& options, bool required, const std::function<int(const Options&)>& body);

}  // namespace cox::perf
