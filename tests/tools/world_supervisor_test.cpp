// cox run --processes, with shell scripts and with tests/programs/world_member.cpp and world_random_collectives.cpp.
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/variable.hpp>
#include <coxswain/tests/tools/command.hpp>
#include <coxswain/tests/tools/scratch_folder.hpp>
#include <coxswain/tests/tools/shell.hpp>

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::test::ScratchFolder;
using cox::test::Variable;
using cox::tools::code_of;
using cox::tools::Command;
using cox::tools::lines_of;
using cox::tools::Shell;

namespace {

// cox run --processes N OPTIONS -- PROGRAM, with the back-off short.
Command run_world(std::size_t processes, const std::vector<std::string>& options,
                  const std::vector<std::string>& program) {
  std::vector<std::string> arguments{"run", "--processes", std::to_string(processes)};
  if (std::ranges::find(options, "--backoff") == options.end())
    for (const char* option : {"--backoff", "1ms", "--backoff-max", "1ms"}) arguments.emplace_back(option);
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.emplace_back("--");
  arguments.insert(arguments.end(), program.begin(), program.end());
  return Command::run(arguments);
}

// Functions for the scripts, which share the folder $OUT. A process is gone once the supervisor has seen its end.
const std::string functions =
    "P=$COX_WORLD_PROCESS; D=$OUT/$COX_WORLD_RESTART; mkdir -p $D; echo $$ > $D/draft$P; mv $D/draft$P $D/pid$P; "
    "await() { while ! [ -e $D/$1 ]; do :; done; }; "
    "await_gone() { await pid$1; while kill -0 $(cat $D/pid$1) 2> /dev/null; do :; done; }; ";

Command run_script(std::size_t processes, const std::string& script, const std::vector<std::string>& options = {}) {
  return run_world(processes, options, {"/bin/sh", "-c", functions + script});
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

}  // namespace

TEST_CASE("cox run --processes starts the processes of a world, and ends when all have ended") {
  const ScratchFolder folder;
  const Variable out("OUT", folder.path());
  const Command command = run_script(
      3,
      "echo $COX_WORLD_PROCESSES $COX_WORLD_LOCAL_PROCESS $COX_WORLD_LOCAL_PROCESSES $COX_WORLD_RESTART $COX_RESTART "
      "${#COX_WORLD_TOKEN} $([ -S $COX_KEEPER ] && basename $COX_KEEPER) ${COX_LAST_FAULT-none} $(basename "
      "$COX_FAULT_REPORT) "
      "$COX_WORLD_TOKEN $COX_WORLD_RUN $COX_WORLD > $OUT/words$P; "
      "[ $P = 0 ] || await_gone 0");
  CHECK(code_of(command) == 0);
  CHECK(command.err.empty());
  const std::vector<std::string> first = words_of(folder.text("words0"));
  REQUIRE(first.size() == 12);
  for (std::size_t process = 0; process < 3; ++process) {
    const std::string number = std::to_string(process);
    std::vector<std::string> expected{
        "3", number, "3", "0", "0", "32", "kept-" + number + "-1", "none", "fault-" + number + ".json"};
    expected.insert(expected.end(), first.begin() + 9, first.end());  // the same in all processes
    CHECK(words_of(folder.text("words" + number)) == expected);
  }
  CHECK_THAT(first[11], Catch::Matchers::StartsWith("leader://127.0.0.1:"));
  CHECK(code_of(run_script(3, "echo $COX_WORLD_RUN > $OUT/words3")) == 0);
  CHECK(words_of(folder.text("words3")) != std::vector<std::string>{first[10]});
}

TEST_CASE("The exit code of a world is that of the first process that failed; each failure is reported") {
  const ScratchFolder folder;
  const Variable out("OUT", folder.path());
  const Command command = run_script(3, "[ $P = 1 ] && exit 3; await_gone 1; [ $P = 0 ] && exit 5; exit 0");
  CHECK(code_of(command) == 3);
  const auto name = [&](const std::string& process) {
    return "cox run: process " + process + " (pid " + words_of(folder.text("0/pid" + process)).at(0) +
           ") of '/bin/sh' ";
  };
  CHECK_THAT(command.err, ContainsSubstring(name("1") + "ended with code 3; the others have 10s to end\n") &&
                              ContainsSubstring(name("0") + "ended with code 5\n"));
  CHECK(lines_of(command.err) == 2);
  CHECK(code_of(run_script(2, "[ $P = 1 ] && kill -SEGV $$; await_gone 1")) == 128 + SIGSEGV);
}

TEST_CASE("A process that outlives the grace is ended") {
  const ScratchFolder folder;
  const Variable out("OUT", folder.path());
  const Command command = run_script(
      3,
      "if [ $P = 1 ]; then await pid0; await pid2; exit 3; fi; [ $P = 2 ] && await_gone 1 && exit 0; exec sleep 1000",
      {"--grace", "10ms"});
  CHECK(code_of(command) == 3);
  CHECK_THAT(command.err, ContainsSubstring("the others have 10ms to end\n") &&
                              ContainsSubstring("of '/bin/sh' has not ended within 10ms, and is sent SIGTERM\n") &&
                              ContainsSubstring("of '/bin/sh' was ended by signal 15 (Terminated)\n"));
}

TEST_CASE("A world is restarted as a whole, with a higher COX_WORLD_RESTART, until the limit") {
  const ScratchFolder folder;
  const Variable out("OUT", folder.path());
  const Command command = run_script(2,
                                     "echo $COX_WORLD_TOKEN > $D/token$P; echo $COX_RESTART > $D/restart$P; "
                                     "[ $P = 1 ] && exit 86; await_gone 1; exit 4",
                                     {"--restarts", "2"});
  CHECK(code_of(command) == 86);
  std::set<std::string> tokens;
  for (const char* restart : {"0", "1", "2"}) {
    const std::string run(restart);
    CHECK(folder.text(run + "/restart0") == run + "\n");
    CHECK(folder.text(run + "/restart1") == run + "\n");
    tokens.insert(folder.text(run + "/token1"));
  }
  CHECK(tokens.size() == 3);
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/3"));
  const std::string first = "cox run: the first failure of 2 processes of '/bin/sh': process 1 ended with code 86; ";
  CHECK_THAT(command.err, ContainsSubstring(first + "restart 1 of all processes in 1ms (limit 2 within 1h)\n") &&
                              ContainsSubstring(first + "restart 2 of all processes in 1ms (limit 2 within 1h)\n") &&
                              ContainsSubstring(first + "not restarted: the limit is 2 within 1h\n"));
}

TEST_CASE("The first failure decides whether a world is restarted") {
  const ScratchFolder folder;
  const Variable out("OUT", folder.path());
  // Process 0 ends at the end of the grace: a process that has begun to end by the time the failure of process 1 is
  // found counts as the first one, too.
  const auto ends_with = [&](const std::string& first, const std::string& other,
                             std::vector<std::string> options = {}) {
    std::filesystem::remove_all(folder.path() + "/0");
    options.insert(options.end(), {"--grace", "1ms"});
    return code_of(run_script(2,
                              "[ $COX_RESTART = 1 ] && exit 9; [ $P = 1 ] && await ready0 && exit " + first +
                                  "; trap 'exit " + other + "' TERM; echo > $D/ready0; while :; do :; done",
                              options));
  };
  CHECK(ends_with("87", "1") == 9);  // the loss of the world
  CHECK(ends_with("1", "87") == 1);
  CHECK(ends_with("1", "86") == 9);  // a GPU fault counts as the first failure
  CHECK(ends_with("75", "1") == 75);
  CHECK(ends_with("75", "1", {"--on", "75"}) == 9);
}

TEST_CASE("All processes of a restarted world have the report of the fault that ended the last run") {
  const ScratchFolder folder;
  const Variable out("OUT", folder.path());
  const Command command = run_script(
      2,
      "if [ $COX_RESTART = 1 ]; then cat $COX_LAST_FAULT > $D/last$P; exit; fi; "
      R"~([ $P = 0 ] && await_gone 1 && exit 1; echo '{"name": "CUDA_ERROR_ASSERT", "code": 710, "call": "launch", )~"
      R"~("suspects": []}' > $COX_FAULT_REPORT; exit 86)~");
  CHECK(code_of(command) == 0);
  CHECK_THAT(command.err,
             ContainsSubstring("ended with code 86: CUDA_ERROR_ASSERT (710) from launch, no suspect; the others"));
  CHECK_THAT(folder.text("1/last0"), ContainsSubstring("CUDA_ERROR_ASSERT"));
  CHECK(folder.text("1/last0") == folder.text("1/last1"));
}

TEST_CASE("A signal to cox run reaches all processes of a world, which is then not restarted") {
  for (const char* signal : {"TERM", "INT", "HUP", "QUIT"}) {
    const ScratchFolder folder;
    const Variable out("OUT", folder.path());
    const std::string name(signal);
    CAPTURE(name);
    const Command command = run_script(3, "trap 'kill -9 $! 2> /dev/null; exit 86' " + name +
                                              "; sleep 60 & echo > $D/ready$P; [ $P = 2 ] && await ready0 && await "
                                              "ready1 && kill -" +
                                              name + " $PPID; wait");
    CHECK(code_of(command) == 86);
    CHECK(command.err.empty());
  }
}

TEST_CASE("Processes of a world that do not end after a signal are killed after a time, or by the second signal") {
  for (const bool is_repeated : {false, true}) {
    const ScratchFolder folder;
    const Variable out("OUT", folder.path());
    CAPTURE(is_repeated);
    // Process 0 ends in time, process 1 does not, process 2 sends the signals.
    const Command command =
        run_script(3,
                   "[ $P = 0 ] && trap 'exit 3' TERM || trap '' TERM INT; echo > $D/ready$P; "
                   "[ $P = 0 ] && while :; do :; done; "
                   "[ $P = 2 ] && await ready0 && await ready1 && kill -TERM $PPID && await_gone 0" +
                       std::string(is_repeated ? " && sleep 1.1 && kill -INT $PPID" : "") + "; exec sleep 1000",
                   {"--kill-after", is_repeated ? "1h" : "5s", "--grace", "0ms"});
    CAPTURE(command.err);
    CHECK(code_of(command) == 3);
    const std::string late = std::string("of '/bin/sh' has not ended ") +
                             (is_repeated ? "before the second signal" : "within 5s of the signal") +
                             ", and is sent SIGKILL\n";
    CHECK_THAT(command.err, ContainsSubstring(late) && !ContainsSubstring("SIGTERM"));
    CHECK(lines_of(command.err) == 2);
  }
}

TEST_CASE("SIGUSR1 reaches all processes of a world and leaves the rest as it is") {
  const ScratchFolder folder;
  const Variable out("OUT", folder.path());
  const Command command = run_script(
      2,
      "[ $COX_RESTART = 1 ] && exit 0; trap 'kill -9 $! 2> /dev/null; exit 86' USR1; sleep 60 & echo > $D/ready$P; "
      "[ $P = 1 ] && await ready0 && kill -USR1 $PPID; wait");
  CHECK(code_of(command) == 0);
  CHECK_THAT(command.err, ContainsSubstring("process 0 (pid ") && ContainsSubstring("process 1 (pid "));
}

TEST_CASE("A signal during the back-off of a world ends cox run at once") {
  const ScratchFolder folder;
  const Variable out("OUT", folder.path());
  // The signal is sent when the supervisor has seen the end of both processes.
  const Command command = run_script(
      2, "[ $P = 1 ] && exit 86; await_gone 1; (while kill -0 $$ 2> /dev/null; do :; done; kill -TERM $PPID) & exit 1",
      {"--backoff", "1h", "--backoff-max", "1h"});
  CHECK(code_of(command) == 128 + SIGTERM);
  CHECK_THAT(command.err, ContainsSubstring("restart 1 of all processes in 1h"));
}

TEST_CASE("A program that cannot be run as a world ends with 127 and one line") {
  const Command missing = run_world(2, {}, {"/nowhere/program"});
  CHECK(code_of(missing) == 127);
  CHECK(missing.err == "cox run: cannot start '/nowhere/program': No such file or directory\n");
}

TEST_CASE("A world does not start with settings that its leader cannot use") {
  for (const char* variable : {"COX_WORLD_HEARTBEAT", "COX_WORLD_SILENCE", "COX_COLLECTIVES_MAX_AHEAD"}) {
    const Shell run = Shell::run(std::string(variable) + "=soon $COX run --processes 2 -- true");
    CHECK(run.code == 2);
    CHECK_THAT(run.output, ContainsSubstring(variable));
    CHECK(lines_of(run.output) == 1);
  }
}

TEST_CASE("One process is run as without --processes") {
  CHECK(code_of(run_world(1, {"--kept-limit", "1GiB"},
                          {"/bin/sh", "-c", "[ -z \"$COX_WORLD$COX_WORLD_PROCESS\" ] && [ -S $COX_KEEPER ]"})) == 0);
}

TEST_CASE("A world of several processes has no standby, and no count that is out of range") {
  const Command standby = run_world(2, {"--standby"}, {"/bin/true"});
  CHECK(code_of(standby) == 2);
  CHECK_THAT(standby.err, ContainsSubstring("--standby is for one process"));
  CHECK(code_of(run_world(0, {}, {"/bin/true"})) == 2);
  CHECK(code_of(run_world(65536, {}, {"/bin/true"})) == 2);
  CHECK(code_of(run_world(2, {"--grace", "soon"}, {"/bin/true"})) == 2);
}

TEST_CASE("A supervisor reports the processes of its world, and starts them all again on --reload") {
  const ScratchFolder folder;
  const Variable out("OUT", folder.path());
  const std::string supervisor = std::to_string(getpid());
  Command ended{};
  std::thread runs([&ended] {
    // The first run lasts until SIGTERM, which one process takes for its end and the other one ends by.
    ended = run_script(2,
                       "[ $COX_RESTART = 1 ] && { [ $P = 0 ] && exit 7; await_gone 0; exit 0; }; [ $P = 0 ] && trap "
                       "'exit 0' TERM; echo > $D/ready$P; while :; do :; done");
  });
  const auto query = [&](const char* what) { return Command::run({"run", what, supervisor}); };
  Command status = query("--status");
  while (code_of(status) != 0 || folder.text("0/ready0").empty() || folder.text("0/ready1").empty())
    status = query("--status");
  const auto id = [&](const std::string& process) { return words_of(folder.text("0/pid" + process)).at(0); };
  CHECK_THAT(status.out,
             ContainsSubstring("program: /bin/sh, 2 processes (" + id("0") + ", " + id("1") + "), run for") &&
                 ContainsSubstring("restarts: 0\n") && ContainsSubstring("kept memory: none\n"));
  const Command world = Command::run({"world", supervisor});
  CHECK_THAT(world.out, ContainsSubstring("a world of 2 processes, of which 0 have joined\n") &&
                            ContainsSubstring("process 1: has not joined\n"));
  const Command reload = query("--reload");
  CHECK_THAT(reload.out,
             ContainsSubstring("all processes have been sent SIGTERM; they are started again when all have"));
  runs.join();
  CHECK(code_of(ended) == 7);
  CHECK_THAT(ended.err, ContainsSubstring("; reload with ") && ContainsSubstring("ended with code 7"));
  CHECK_THAT(query("--status").err, ContainsSubstring("no supervisor in process " + supervisor));
}

TEST_CASE("Processes of cox run --processes compute what one process computes") {
  const ScratchFolder folder;
  const Variable out("OUT", folder.path());
  const auto ranks = [&](std::size_t processes, const std::string& devices) {
    const Variable count("COX_HOST_DEVICES", devices);
    const Command command =
        run_world(processes, {},
                  {"/bin/sh", "-c", "exec \"$0\" work " + devices + " 2 > $OUT/${COX_WORLD_PROCESS:-0}",
                   COX_WORLD_RANDOM_COLLECTIVES});
    CAPTURE(command.err);
    CHECK(code_of(command) == 0);
    std::multiset<std::string> lines;
    for (std::size_t process = 0; process < processes; ++process) {
      std::istringstream text(folder.text(std::to_string(process)));
      for (std::string line; std::getline(text, line);)
        if (line.starts_with("rank ")) lines.insert(line);
    }
    return lines;
  };
  const std::multiset<std::string> expected = ranks(1, "3");
  CHECK(expected.size() == 3);
  CHECK(ranks(3, "1") == expected);
}

TEST_CASE("When a process of a world is killed, the others are notified and end, and the world is restarted") {
  const ScratchFolder folder;
  const Command command = run_world(3, {"--on", "signal"}, {COX_WORLD_MEMBER, folder.path()});
  CAPTURE(command.err, folder.text("0"), folder.text("2"));
  CHECK(code_of(command) == 0);
  CHECK(folder.text("1") == "sum\nsum\n");
  for (const char* other : {"0", "2"}) {
    CHECK_THAT(folder.text(other), Catch::Matchers::StartsWith("sum\n") && ContainsSubstring("process 1") &&
                                       Catch::Matchers::EndsWith("\nsum\n"));
  }
  CHECK_THAT(command.err, ContainsSubstring("process 1 was ended by signal 9 (Killed); restart 1 of all processes"));
  CHECK_THAT(command.err, !ContainsSubstring("SIGTERM"));
}

TEST_CASE("With --successors a process that fails is started again alone") {
  const ScratchFolder folder;
  const Variable out("OUT", folder.path());
  // Process 0 waits until the second start of process 1, whose files are in the folder of its restart.
  const Command command = run_script(2,
                                     "[ $P = 1 ] && { [ $COX_WORLD_RESTART = 0 ] && exit 86; exit 0; }; "
                                     "while ! [ -e $OUT/1/pid1 ]; do :; done",
                                     {"--successors"});
  CAPTURE(command.err);
  CHECK(code_of(command) == 0);
  CHECK_THAT(command.err, ContainsSubstring("process 1 (pid ") && ContainsSubstring("its successor starts in 1ms"));
  CHECK(folder.text("1/pid0").empty());
}

TEST_CASE("With --successors a process that is stopped is expelled, killed and started again alone") {
  const ScratchFolder folder;
  const Variable out("OUT", folder.path());
  const Variable devices("COX_HOST_DEVICES", "1");
  const Variable silence("COX_WORLD_SILENCE", "1s");
  const Variable heartbeat("COX_WORLD_HEARTBEAT", "100ms");
  Command ended{};
  std::atomic<bool> has_ended{false};
  std::thread runs([&] {
    ended = run_world(3, {"--successors", "--grace", "0ms", "--restarts", "1000"},
                      {"/bin/sh", "-c", functions + "exec \"$0\" work $OUT/end > $D/steps$P", COX_WORLD_SUCCESSORS});
    has_ended.store(true);
  });
  const auto await = [&](const std::string& file) {
    while (folder.text(file).empty() && !has_ended.load()) std::this_thread::yield();
  };
  await("0/steps1");
  CHECK(kill(static_cast<pid_t>(std::stol(folder.text("0/pid1"))), SIGSTOP) == 0);
  await("1/steps1");
  std::ofstream(folder.path() + "/end") << "end";
  runs.join();
  CAPTURE(ended.err);
  CHECK(code_of(ended) == 0);
  CHECK_THAT(ended.err, ContainsSubstring("has been expelled from the world, has not ended within 0s") &&
                            ContainsSubstring("was ended by signal 9 (Killed); its successor starts in 1ms"));
}

TEST_CASE("A process is started again alone as often as the limit allows, and its last failure ends the world") {
  const ScratchFolder folder;
  const Variable out("OUT", folder.path());
  const Command command = run_script(2, "[ $P = 1 ] && exit 86; trap 'exit 0' TERM; while :; do :; done",
                                     {"--successors", "--restarts", "2", "--grace", "1ms"});
  CAPTURE(command.err);
  CHECK(code_of(command) == 86);
  CHECK_FALSE(folder.text("2/pid1").empty());
  CHECK(folder.text("3/pid1").empty());
}

TEST_CASE("Successors need several processes, and hold no kept memory") {
  CHECK_THAT(Command::run({"run", "--successors", "--", "true"}).err, ContainsSubstring("--processes 2 or more"));
  CHECK_THAT(run_world(2, {"--successors", "--kept-limit", "1GiB"}, {"true"}).err,
             ContainsSubstring("no kept memory is held with --successors"));
}
