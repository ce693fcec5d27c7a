// Kept memory of several processes from run to run: tests/programs/kept_world_worker.cpp under cox run --processes.
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/tools/command.hpp>
#include <coxswain/tests/tools/scratch_folder.hpp>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::test::ScratchFolder;
using cox::tools::Command;

namespace {

Command run_workers(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& options = {"--restarts", "1000", "--on", "signal"}) {
  std::vector<std::string> all{"run",           "--processes", "2",       "--backoff", "1ms",
                               "--backoff-max", "1ms",         "--grace", "500ms"};
  all.insert(all.end(), options.begin(), options.end());
  all.insert(all.end(), {"--", COX_KEPT_WORLD_WORKER});
  all.insert(all.end(), arguments.begin(), arguments.end());
  return Command::run(all);
}

struct Found {
  std::uint64_t newest = 0;
  std::uint64_t older = 0;
  std::uint64_t agreed = 0;
};

// What the runs of a process have found.
std::vector<Found> found_in(const ScratchFolder& folder, const char* process) {
  std::istringstream text(folder.text(process));
  std::vector<Found> all;
  std::string word;
  for (Found found; text >> word >> found.newest >> found.older >> word >> found.agreed;) all.push_back(found);
  return all;
}

}  // namespace

TEST_CASE("Kept memory of a world has the agreed contents, whichever process is killed, and whenever") {
  for (const std::string mode : {"in_place", "double"}) {
    const ScratchFolder folder;
    // The last run, as each, compares its memory with the epoch that is agreed on; exit code 3: they differ.
    const Command command = run_workers({mode, "10", "12", folder.path()});
    CAPTURE(mode, command.err, folder.text("0"), folder.text("1"));
    CHECK(static_cast<int>(command.code) == 0);
    CHECK_THAT(command.err, ContainsSubstring(" of kept memory\n"));
    bool has_memory = false;
    std::uint64_t last = 0;
    for (const Found& each : found_in(folder, "0")) {
      if (each.agreed != 0) {
        CHECK(each.agreed >= last);
        last = each.agreed;
        has_memory = true;
      } else if (mode == "double") {
        CHECK_FALSE(has_memory);  // two copies have always an epoch in common
      }
    }
    CHECK(has_memory);
  }
}

TEST_CASE("A process that has committed alone goes back with two copies, and has nothing to go on with one") {
  for (const std::string mode : {"in_place", "double"}) {
    const ScratchFolder folder;
    const Command command = run_workers({mode, "3", "1", folder.path(), "behind"});
    CAPTURE(mode, command.err);
    CHECK(static_cast<int>(command.code) == 0);
    if (mode == "double") {
      CHECK(folder.text("0") == "found 0 0 agreed 0\nfound 5 4 agreed 4\n");
      CHECK(folder.text("1") == "found 0 0 agreed 0\nfound 4 0 agreed 4\n");
    } else {
      CHECK(folder.text("0") == "found 0 0 agreed 0\nfound 5 0 agreed 0\n");
      CHECK(folder.text("1") == "found 0 0 agreed 0\nfound 0 0 agreed 0\n");
    }
  }
}

TEST_CASE("The kept memory of all processes of a world counts against --kept-limit") {
  const ScratchFolder folder;
  const auto run_with = [&](const char* limit) {  // each process keeps 128 KiB and a record of 64 KiB
    return static_cast<int>(
        run_workers({"in_place", "3", "0", folder.path()}, {"--kept-limit", limit, "--restarts", "0"}).code);
  };
  CHECK(run_with("300KiB") == 87);  // the KeptError of a process
  CHECK(run_with("400KiB") == 0);
}
