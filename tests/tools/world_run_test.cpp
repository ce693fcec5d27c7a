#include <coxswain/tests/support/catch.hpp>

#include <coxswain/tools/cox/supervisor/child_process.hpp>
#include <coxswain/tools/cox/supervisor/descendants.hpp>
#include <coxswain/tools/cox/supervisor/world_run.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
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
  explicit Run(const WorldGrace& grace = {}, cox::tools::WorldSuccessors successors = {})
      : world("train", grace, err, std::move(successors)) {}

  static std::unique_ptr<ChildProcess> start(const std::string& script) {
    return std::make_unique<ChildProcess>(std::vector<std::string>{"/bin/sh", "-c", script},
                                          cox::tools::EnvironmentChanges{});
  }
  pid_t add(const std::string& script) {
    auto child = start(script);
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

namespace {

/// A process on another host.
class FarProcess final : public cox::tools::WorldProcess {
 public:
  explicit FarProcess(const ProgramEnd& end, bool ended_before) : end_(end), ended_before_(ended_before) {}

  std::optional<ProgramEnd> end() noexcept override {
    return is_found_ ? std::optional<ProgramEnd>(end_) : std::nullopt;
  }
  void send(int signal) noexcept override { sent_.push_back(signal); }
  [[nodiscard]] pid_t id() const noexcept override { return 0; }
  [[nodiscard]] std::string place() const override { return "pid 5 on node 1"; }
  void note_failure() noexcept override { is_noted_ = true; }
  [[nodiscard]] bool ended_before_failure() const noexcept override { return ended_before_; }

  [[nodiscard]] bool is_noted() const noexcept { return is_noted_; }
  [[nodiscard]] const std::vector<int>& sent() const noexcept { return sent_; }
  void find() noexcept { is_found_ = true; }

 private:
  ProgramEnd end_;
  bool ended_before_;
  bool is_found_ = false;
  bool is_noted_ = false;
  std::vector<int> sent_;
};

}  // namespace

TEST_CASE("Of processes on two hosts, the one that had ended before the first failure was found can be its cause") {
  for (const bool ended_before : {true, false}) {
    for (const ProgramEnd& far_end :
         {ProgramEnd{.code = 0, .signal = SIGKILL}, ProgramEnd{.code = 87, .is_lost = true}}) {
      CAPTURE(ended_before, far_end.to_string());
      Run run;
      run.add_ended("exit 3");
      auto process = std::make_unique<FarProcess>(far_end, ended_before);
      FarProcess& far = *process;
      run.world.add(std::move(process), "/nowhere");
      CHECK(run.world.ids().size() == 1);
      CHECK(run.world.tend());
      CHECK(run.world.failure()->process == 0);
      CHECK(far.is_noted());
      run.world.send(SIGTERM, {.first = 1, .count = 1});
      run.world.send(SIGUSR1, {.first = 0, .count = 1});
      CHECK(far.sent() == std::vector<int>{SIGUSR1});
      far.find();
      CHECK_FALSE(run.world.tend());
      CHECK(run.world.failure()->process == (ended_before ? 1 : 0));
      CHECK_THAT(run.err.str(), ContainsSubstring("process 1 (pid 5 on node 1) of 'train' " + far_end.to_string()));
    }
  }
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

TEST_CASE("A process that gets a successor is no failure, and the others run on") {
  std::size_t failures = 0;
  Run run({}, {.delay = [&](std::size_t process, const ProgramEnd& end) -> std::optional<std::chrono::nanoseconds> {
                 CHECK(process == 1);
                 CHECK(end.exit_code() == 86);
                 return ++failures == 1 ? std::optional(std::chrono::nanoseconds(0)) : std::nullopt;
               },
               .start = [](std::size_t) { return Run::start("exit 86"); }});
  run.add("trap 'exit 0' TERM; while :; do :; done");
  const pid_t first = run.add_ended("exit 86");
  CHECK(run.world.tend());
  CHECK_FALSE(run.world.failure());
  CHECK_THAT(run.err.str(), ContainsSubstring("ended with code 86; its successor starts in 0s"));
  const pid_t second = run.world.ids()[1];
  CHECK(second != first);
  // The successor gets none, and counts.
  wait_for(second);
  CHECK(run.world.tend());
  REQUIRE(run.world.failure());
  CHECK(run.world.failure()->process == 1);
}

TEST_CASE("A process that is expelled from the world and does not end is killed, and gets a successor") {
  std::optional<ProgramEnd> ended;
  Run run({.before_terminate = std::chrono::nanoseconds(0)},
          {.delay = [&](std::size_t, const ProgramEnd& end) -> std::optional<std::chrono::nanoseconds> {
             ended = end;
             return std::chrono::hours(1);
           },
           .start = [](std::size_t) { return Run::start("exit 0"); }});
  run.add("exec sleep 1000");
  const pid_t stopped = run.add("kill -STOP $$; exit 3");
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(stopped), &info, WSTOPPED) == 0);
  CHECK(run.world.tend());
  CHECK_FALSE(run.world.due());
  run.world.note_expelled(1);
  CHECK(run.world.due());
  CHECK(run.world.tend());
  wait_for(stopped);
  CHECK(run.world.tend());
  CHECK(ended == ProgramEnd{.code = 0, .signal = SIGKILL});
  CHECK_FALSE(run.world.failure());
  const std::string name = "cox run: process 1 (pid " + std::to_string(stopped) + ") of 'train' ";
  CHECK_THAT(
      run.err.str(),
      ContainsSubstring(name + "has been expelled from the world, has not ended within 0s, and is sent SIGKILL\n") &&
          ContainsSubstring(name + "was ended by signal 9 (Killed); its successor starts in 1h\n"));
}

TEST_CASE("An expelled process of a world without successors has the time that the failure of another one gives it") {
  Run run({.before_terminate = std::chrono::nanoseconds(0)});
  run.add("exec sleep 1000");
  run.world.note_expelled(0);
  CHECK_FALSE(run.world.due());
}

TEST_CASE("A process that waits for its start when all others have ended has failed") {
  Run run({}, {.delay = [](std::size_t, const ProgramEnd&) { return std::optional(std::chrono::hours(1)); },
               .start = [](std::size_t) -> std::unique_ptr<ChildProcess> {
                 FAIL("it is started");
                 return nullptr;
               }});
  const pid_t other = run.add("trap 'exit 0' TERM; while :; do :; done");
  run.add_ended("exit 86");
  CHECK(run.world.tend());
  CHECK(run.world.due());
  kill(other, SIGTERM);
  wait_for(other);
  CHECK_FALSE(run.world.tend());
  REQUIRE(run.world.failure());
}
