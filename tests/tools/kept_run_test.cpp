// Kept memory from run to run: tests/programs/kept_worker.cpp under cox run.
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>
#include <coxswain/tests/tools/command.hpp>

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::test::TemporaryFile;
using cox::tools::Command;

namespace {

struct Reports {
  std::map<std::string, int> counts;  // by the first word
  std::uint64_t last = 0;             // last epoch that was reported as whole
  bool falls = false;                 // an epoch was less than an earlier one
};

Reports reports_in(const std::string& path) {
  Reports reports;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    ++reports.counts[line.substr(0, line.find_first_of(" :"))];
    if (!line.starts_with("whole ")) continue;
    const std::uint64_t epoch = std::stoull(line.substr(6));
    if (epoch < reports.last) reports.falls = true;
    reports.last = epoch;
  }
  return reports;
}

/// The first line of the file, as soon as it is complete.
std::string awaited_line(const std::string& path) {
  std::string line;
  for (;;) {
    std::ifstream file(path);
    if (std::getline(file, line) && !file.eof()) return line;
    std::this_thread::yield();
  }
}

}  // namespace

TEST_CASE("Kept memory has the reported contents, at whatever point the process is killed") {
  for (const std::string mode : {"in_place", "double"}) {
    const TemporaryFile file("");
    constexpr int kills = 25;
    // The last run compares the memory with the epoch that it finds; exit code 3: they differ.
    const Command command =
        Command::run({"run", "--restarts", "1000", "--backoff", "1ms", "--backoff-max", "1ms", "--on", "signal", "--",
                      COX_KEPT_WORKER, mode, "10", std::to_string(kills), file.path()});
    CAPTURE(mode, command.err);
    CHECK(static_cast<int>(command.code) == 0);
    const Reports reports = reports_in(file.path());
    CHECK(reports.counts.at("empty") >= 1);
    CHECK(reports.counts.at("whole") >= 1);
    CHECK_FALSE(reports.falls);
    if (mode == "double") CHECK_FALSE(reports.counts.contains("torn"));
    CHECK_THAT(command.err, ContainsSubstring(" of kept memory\n"));
  }
}

TEST_CASE("Nothing of a killed program writes kept memory any more when the next one has it mapped") {
  const Command command = Command::run({"run", "--restarts", "1000", "--backoff", "1ms", "--backoff-max", "1ms", "--on",
                                        "signal", "--", COX_KEPT_COUNTER, "20"});
  CAPTURE(command.err);
  CHECK(static_cast<int>(command.code) == 0);
}

TEST_CASE("Memory of a device that the next process does not use is reported, and stays held") {
  const Command command =
      Command::run({"run", "--backoff", "1ms", "--backoff-max", "1ms", "--on", "75", "--", COX_KEPT_ELSEWHERE});
  CAPTURE(command.err);
  CHECK(static_cast<int>(command.code) == 0);
}

TEST_CASE("A program that keeps more memory than the limit allows gets an error, and less is held as before") {
  const TemporaryFile file("");
  const auto run_with = [&](const char* limit) {
    return static_cast<int>(
        Command::run({"run", "--kept-limit", limit, "--", COX_KEPT_WORKER, "in_place", "3", "0", file.path()}).code);
  };
  CHECK(run_with("100KiB") == 1);  // its KeptError
  CHECK(run_with("4MiB") == 0);
  CHECK(run_with("many") == 2);
}

TEST_CASE("While memory is held, what a run has left behind is killed, also if the run has not opened a set") {
  const TemporaryFile file("");
  const TemporaryFile child("");
  const std::string script = R"script(case $COX_RESTART in
    0) "$0" in_place 3 0 "$1"; exit 75 ;;
    1) sleep 1000 & echo $! > "$2"; exit 75 ;;
    2) ! kill "$(cat "$2")" ;;
  esac)script";
  const Command command = Command::run({"run", "--backoff", "1ms", "--backoff-max", "1ms", "--on", "75", "--", "sh",
                                        "-c", script, COX_KEPT_WORKER, file.path(), child.path()});
  CAPTURE(command.err);
  CHECK(static_cast<int>(command.code) == 0);
  CHECK_THAT(command.err, ContainsSubstring("restart 2 "));
}

TEST_CASE("A program with kept memory ends with its supervisor, also if a launcher lies between") {
  const TemporaryFile file("");
  const TemporaryFile program("");
  const pid_t supervisor = fork();
  if (supervisor == 0) {
    execl(COX_PROGRAM, "cox", "run", "--", "sh", "-c",
          "\"$0\" in_place 1000000000000 0 \"$1\" & echo $! > \"$2\"; wait", COX_KEPT_WORKER, file.path().c_str(),
          program.path().c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  const auto id = static_cast<pid_t>(std::stol(awaited_line(program.path())));
  CHECK(awaited_line(file.path()) == "empty");  // it has opened its set
  const auto process = static_cast<int>(syscall(SYS_pidfd_open, id, 0));
  REQUIRE(process >= 0);
  REQUIRE(kill(supervisor, SIGKILL) == 0);
  REQUIRE(waitpid(supervisor, nullptr, 0) == supervisor);
  pollfd ended{.fd = process, .events = POLLIN, .revents = 0};
  constexpr int too_long_ms = 60'000;
  CHECK(poll(&ended, 1, too_long_ms) == 1);
  close(process);
}
