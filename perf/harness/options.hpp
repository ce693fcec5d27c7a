#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace cox::perf {

/// What the command line of a perf program says.
struct Options {
  bool quick = false;             ///< a tenth of the work, three rounds: for a look, not for a claim
  bool list = false;              ///< print the cases and leave
  std::string filter = ".*";      ///< regular expression over "FIGURE CASE"
  std::string contenders = ".*";  ///< regular expression over contender names; ours always runs
  std::string ours;               ///< the contender that the others are divided by; empty: the program's choice
  std::string json;               ///< file for the rows; empty: none
  unsigned rounds = 0;            ///< 0: 7, or 3 with --quick
  std::uint64_t seed = 0;         ///< order of contenders within the rounds; 0: drawn and printed
  std::vector<std::string> own_arguments;  ///< the program's own, which fresh processes are given, too
  std::vector<std::string> sample;  ///< case and contender: print one sample of it and leave (fresh processes use it)
};

/// Adds what one program alone understands.
using MoreOptions = std::function<void(CLI::App&)>;

/// Reads the command line. Prints help or the error and ends the process where there is nothing to run.
Options parse_options(int argc, char** argv, const std::string& about, const MoreOptions& more = {});

}  // namespace cox::perf
