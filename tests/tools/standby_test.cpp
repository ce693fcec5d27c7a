// cox run --standby, with tests/programs/standby_worker.cpp and kept_worker.cpp.
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>
#include <coxswain/tests/tools/command.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::test::TemporaryFile;
using cox::tools::Command;

namespace {

struct StandbyProcess {
  std::string id;
  std::string child;
  std::string standby;
  std::string restart;
};

std::vector<std::string> lines_in(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Those that have begun, and the ids of those that have opened their set, in that order.
std::vector<StandbyProcess> processes_in(const std::string& path) {
  std::vector<StandbyProcess> found;
  for (const std::string& line : lines_in(path)) {
    std::istringstream words(line);
    std::string kind;
    StandbyProcess process;
    if (words >> kind >> process.id >> process.child >> process.standby >> process.restart) found.push_back(process);
  }
  return found;
}
std::vector<std::string> opened_in(const std::string& path) {
  std::vector<std::string> found;
  for (const std::string& line : lines_in(path))
    if (line.starts_with("opened ")) found.push_back(line.substr(7));
  return found;
}

Command run_standby(const std::string& file, const std::vector<std::string>& arguments) {
  std::vector<std::string> all{"run",  "--standby", "--backoff",        "1ms", "--backoff-max", "1ms", "--restarts",
                               "1000", "--",        COX_STANDBY_WORKER, file};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return Command::run(all);
}

// Whether the process has ended, or ends soon: it has been killed. Those without another parent are children of this
// one.
bool ends(const std::string& process) {
  const pid_t id = std::stoi(process);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (kill(id, 0) == 0) {
    if (std::chrono::steady_clock::now() > until) return false;
    static_cast<void>(waitpid(id, nullptr, WNOHANG));
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

TEST_CASE("A standby takes over from a program that was killed; what only the program has started is killed") {
  const TemporaryFile file("");
  const Command command = run_standby(file.path(), {"end", "5"});
  CAPTURE(command.err);
  REQUIRE(static_cast<int>(command.code) == 0);  // else see the program
  const std::vector<StandbyProcess> all = processes_in(file.path());
  const std::vector<std::string> opened = opened_in(file.path());
  REQUIRE(all.size() >= 6);
  REQUIRE(opened.size() == 6);
  for (std::size_t i = 0; i < opened.size(); ++i) {
    CHECK(all[i].id == opened[i]);  // each process that was started has become the program in its turn
    CHECK(all[i].restart == std::to_string(i));
    CHECK(all[i].standby == (i == 0 ? "-" : "1"));
  }
  for (const StandbyProcess& each : all) {  // the last standby is ended with the program
    CHECK(ends(each.id));
    CHECK(ends(each.child));
  }
  CHECK_THAT(command.err, ContainsSubstring("; restart 5 with "));
}

TEST_CASE("A standby that is killed is started again, and the program goes on") {
  const TemporaryFile file("");
  const Command command = run_standby(file.path(), {"kill"});
  CAPTURE(command.err);
  CHECK(static_cast<int>(command.code) == 0);
  CHECK_THAT(command.err, ContainsSubstring("the standby was ended by signal 9 (Killed); started again in 1ms\n"));
  CHECK(opened_in(file.path()).size() == 1);
}

TEST_CASE("With a standby, --reload starts a new one and ends the program once that waits; --status shows both") {
  const TemporaryFile file("");
  const std::string supervisor = std::to_string(getpid());
  Command ended{};
  std::thread runs([&] { ended = run_standby(file.path(), {"wait"}); });
  std::string status;
  while (status.find(", waits for kept memory\n") == std::string::npos)
    status = Command::run({"run", "--status", supervisor}).out;
  CHECK_THAT(status, ContainsSubstring("standby: process " + processes_in(file.path()).at(1).id));
  const Command reload = Command::run({"run", "--reload", supervisor});
  CAPTURE(reload.err);
  CHECK_THAT(reload.out, ContainsSubstring("is sent SIGTERM when its successor, process "));
  runs.join();
  CAPTURE(ended.err);
  CHECK(static_cast<int>(ended.code) == 7);
  const std::vector<StandbyProcess> all = processes_in(file.path());
  const std::vector<std::string> opened = opened_in(file.path());
  REQUIRE(opened.size() == 2);
  CHECK(opened[0] == all.at(0).id);
  CHECK(opened[1] == all.at(2).id);  // not the standby that was there before
  CHECK(ends(all.at(1).id));
}

TEST_CASE("A program that keeps no memory has no standby") {
  const Command command = Command::run(
      {"run", "--standby", "--", "/bin/sh", "-c", "[ -z \"$COX_STANDBY\" ] || exit 9; echo > /dev/null; exit 5"});
  CHECK(static_cast<int>(command.code) == 5);
  CHECK(command.err.empty());
}

TEST_CASE("A signal that ends the program ends its standby, too") {
  const TemporaryFile file("");
  const pid_t supervisor = fork();
  if (supervisor == 0) {
    const std::string path = file.path();
    execl(COX_PROGRAM, "cox", "run", "--standby", "--", COX_STANDBY_WORKER, path.c_str(), "wait", nullptr);
    _exit(127);
  }
  while (processes_in(file.path()).size() < 2) std::this_thread::yield();
  REQUIRE(kill(supervisor, SIGTERM) == 0);
  int status = 0;
  REQUIRE(waitpid(supervisor, &status, 0) == supervisor);
  CHECK(WEXITSTATUS(status) == 128 + SIGTERM);
  CHECK(ends(processes_in(file.path()).at(1).id));
  kill(std::stoi(processes_in(file.path()).at(0).child), SIGKILL);  // nothing ends it without a restart
}

TEST_CASE("Kept memory has the reported contents with a standby, too, at whatever point the process is killed") {
  for (const std::string mode : {"in_place", "double"}) {
    const TemporaryFile file("");
    const Command command =
        Command::run({"run", "--standby", "--restarts", "1000", "--backoff", "1ms", "--backoff-max", "1ms", "--on",
                      "signal", "--", COX_KEPT_WORKER, mode, "10", "15", file.path()});
    CAPTURE(mode, command.err);
    CHECK(static_cast<int>(command.code) == 0);
    const std::vector<std::string> lines = lines_in(file.path());
    const std::set<std::string> seen(lines.begin(), lines.end());
    CHECK(std::ranges::any_of(seen, [](const std::string& line) { return line.starts_with("whole "); }));
    if (mode == "double") CHECK_FALSE(seen.contains("torn"));
  }
}
