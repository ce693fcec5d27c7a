// Kept memory from run to run: tests/programs/kept_worker.cpp under cox run.
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>
#include <coxswain/tests/tools/command.hpp>

#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::test::TemporaryFile;
using cox::tools::Command;

namespace {

struct Told {
  std::map<std::string, int> counts;  // by the first word
  std::uint64_t last = 0;             // epoch that was told as whole last
  bool falls = false;                 // an epoch was less than an earlier one
};

Told told_in(const std::string& path) {
  Told told;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    ++told.counts[line.substr(0, line.find(' '))];
    if (!line.starts_with("whole ")) continue;
    const std::uint64_t epoch = std::stoull(line.substr(6));
    if (epoch < told.last) told.falls = true;
    told.last = epoch;
  }
  return told;
}

}  // namespace

TEST_CASE("Kept memory is told as whole or torn, and is what it was told, at whatever point the process is killed") {
  for (const std::string mode : {"in_place", "double"}) {
    const TemporaryFile file("");
    constexpr int kills = 25;
    // The last run continues from the epoch that it finds: told as whole, and checked, or 3.
    const Command command =
        Command::run({"run", "--restarts", "1000", "--backoff", "1ms", "--backoff-max", "1ms", "--on", "signal", "--",
                      COX_KEPT_WORKER, mode, "10", std::to_string(kills), file.path()});
    CAPTURE(mode, command.err);
    CHECK(static_cast<int>(command.code) == 0);
    const Told told = told_in(file.path());
    CHECK(told.counts.at("empty") >= 1);
    CHECK(told.counts.at("whole") >= 1);
    CHECK_FALSE(told.falls);
    if (mode == "double") CHECK_FALSE(told.counts.contains("torn"));
    CHECK_THAT(command.err, ContainsSubstring(" of kept memory\n"));
  }
}
