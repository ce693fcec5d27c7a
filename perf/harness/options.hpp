#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace cox::perf {

/// The command-line options of a perf program.
struct Options {
  bool quick = false;             ///< a tenth of the work, three rounds: a quick check, not for published numbers
  bool list = false;              ///< print the cases and exit
  std::string filter = ".*";      ///< regular expression over "FIGURE CASE"
  std::string contenders = ".*";  ///< regular expression over contender names; ours always runs
  std::string ours;               ///< the contender that the others are divided by; empty: the program's choice
  std::string json;               ///< file for the rows; empty: none
  unsigned rounds = 0;            ///< 0: 7, or 3 with --quick
  std::uint64_t seed = 0;         ///< seed of the order of contenders in each round; 0: random, and printed
  std::vector<std::string> own_arguments;  ///< arguments of this program only, passed on to fresh processes
  std::vector<std::string> sample;         ///< case and contender: print one sample and exit (for fresh processes)
};

/// Adds the options that only one program has.
using MoreOptions = std::function<void(CLI::App&)>;

/// Parses the command line. For --help and for an error, prints the text and ends the process, with exit code 0 or 2.
Options parse_options(int argc, char** argv, const std::string& about, const MoreOptions& more = {});

}  // namespace cox::perf
