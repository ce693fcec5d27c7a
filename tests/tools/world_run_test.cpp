#include <coxswain/tests/support/catch.hpp>

#include <coxswain/tools/cox/supervisor/descendants.hpp>
#include <coxswain/tools/cox/supervisor/world_run.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::tools::ChildProcess;
using cox::tools::ProgramEnd;
using cox::tools::WorldGrace;
using cox::tools::WorldRun;

namespace {

// Blocks until the process has ended, and leaves it to its owner.
void wait_for(pid_t process) {
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOWAIT) == 0);
}

struct Run {
  explicit Run(const WorldGrace& grace = {}) : world("train", grace, err) {}

  pid_t add(const std::string& script) {
    auto child = std::make_unique<ChildProcess>(std::vector<std::string>{"/bin/sh", "-c", script},
                                                cox::tools::EnvironmentChanges{});
    const pid_t id = child->id();
    world.add(std::move(child), "/nowhere");
    return id;
  }

  /// A process that has ended when this returns.
  pid_t add_ended(const std::string& script) {
    const pid_t id = add(script);
    wait_for(id);
    return id;
  }

  std::ostringstream err;
  WorldRun world;
};

}  // namespace

TEST_CASE("A run of a world without a failure ends without a report") {
  Run run;
  run.add_ended("exit 0");
  run.add_ended("exit 0");
  CHECK_FALSE(run.world.tend());
  CHECK_FALSE(run.world.failure());
  CHECK(run.err.str().empty());
}

TEST_CASE("Of processes that have ended at the same time, one that a signal has ended counts as the first") {
  Run run;
  for (const char* script : {"exit 3", "kill -ABRT $$", "kill -KILL $$", "exit 87"}) run.add_ended(script);
  CHECK_FALSE(run.world.tend());
  CHECK(run.world.failure()->process == 2);
}

TEST_CASE("A process that has begun to end and cannot be reaped yet ends at the same time as one that is found ended") {
  CHECK_FALSE(cox::tools::is_ending(getpid()));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  wait_for(child);
  CHECK(cox::tools::is_ending(child));
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK_FALSE(cox::tools::is_ending(child));
}

TEST_CASE("Of processes that have ended at the same time, those without their world count as the last") {
  Run run;
  const pid_t first = run.add_ended("exit 87");
  const pid_t second = run.add_ended("exit 3");
  CHECK_FALSE(run.world.tend());
  REQUIRE(run.world.failure());
  CHECK(run.world.failure()->process == 1);
  CHECK(run.world.failure()->end == ProgramEnd{.code = 3, .signal = 0});
  CHECK(run.err.str() == "cox run: process 0 (pid " + std::to_string(first) + ") of 'train' ended with code 87\n" +
                             "cox run: process 1 (pid " + std::to_string(second) + ") of 'train' ended with code 3\n");
}

TEST_CASE("A GPU fault counts as the first failure, also if it is found later") {
  Run run;
  const pid_t first = run.add("exit 3");
  const pid_t second = run.add("trap 'exit 86' USR1; kill -STOP $$; exit 4");
  const pid_t third = run.add("exec sleep 1000");
  wait_for(first);
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(second), &info, WSTOPPED) == 0);  // it has its trap
  CHECK(run.world.tend());
  CHECK(run.world.failure()->process == 0);
  CHECK(run.world.due());
  kill(second, SIGUSR1);
  kill(second, SIGCONT);
  wait_for(second);
  kill(third, SIGKILL);
  wait_for(third);
  CHECK_FALSE(run.world.tend());
  CHECK(run.world.failure()->process == 1);
  CHECK(run.world.failure()->end == ProgramEnd{.code = 86, .signal = 0});
}

TEST_CASE("Processes that outlive the grace are sent SIGTERM, then SIGKILL") {
  Run run({.before_terminate = std::chrono::nanoseconds(0), .before_kill = std::chrono::nanoseconds(0)});
  const pid_t first = run.add("exit 3");
  wait_for(first);
  std::array<int, 2> ready{};
  REQUIRE(pipe(ready.data()) == 0);
  const pid_t second = run.add("trap '' TERM; echo >&" + std::to_string(ready[1]) + "; exec sleep 1000");
  char line = 0;
  REQUIRE(read(ready[0], &line, 1) == 1);  // blocks until SIGTERM is ignored
  close(ready[0]);
  close(ready[1]);
  const std::string name = "cox run: process 1 (pid " + std::to_string(second) + ") of 'train' ";
  CHECK(run.world.tend());
  CHECK_THAT(run.err.str(), ContainsSubstring("; the others have 0s to end\n") &&
                                ContainsSubstring(name + "has not ended within 0s, and is sent SIGTERM\n"));
  CHECK(run.world.tend());
  CHECK_FALSE(run.world.due());
  CHECK_THAT(run.err.str(), ContainsSubstring(name + "has not ended within 0s, and is sent SIGKILL\n"));
  wait_for(second);
  CHECK_FALSE(run.world.tend());
  CHECK(run.world.failure()->process == 0);
  CHECK_THAT(run.err.str(), ContainsSubstring(name + "was ended by signal 9 (Killed)\n"));
}
