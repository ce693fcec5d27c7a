#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>
#include <coxswain/tests/support/variable.hpp>
#include <coxswain/tests/tools/agent.hpp>
#include <coxswain/tests/tools/command.hpp>
#include <coxswain/tests/tools/scratch_folder.hpp>
#include <coxswain/tests/tools/shell.hpp>

#include <coxswain/tools/cox/supervisor/child_process.hpp>

#include <pty.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::test::TemporaryFile;
using cox::test::Variable;
using cox::tools::code_of;
using cox::tools::Command;
using cox::tools::lines_of;
using cox::tools::Shell;

namespace {

// cox run OPTIONS -- /bin/sh -c SCRIPT, with the back-off short.
Command run_script(const std::string& script, std::vector<std::string> options = {}) {
  std::vector<std::string> arguments{"run"};
  if (std::ranges::find(options, "--backoff") == options.end()) {
    for (const char* option : {"--backoff", "1ms", "--backoff-max", "1ms"}) arguments.emplace_back(option);
  }
  arguments.insert(arguments.end(), options.begin(), options.end());
  for (const std::string& word : {std::string("--"), std::string("/bin/sh"), std::string("-c"), script})
    arguments.push_back(word);
  return Command::run(arguments);
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}
std::string content(const TemporaryFile& file) { return text_of(file.path()); }

// Whether the process has ended or ends within a moment.
bool ends(pid_t process) {
  const cox::FileDescriptor ended = cox::test::open_process(process);
  return !ended.is_open() || cox::is_readable(ended.get(), 10'000);
}

// The exit code of a child of the test; -1 if it does not end, and is killed, or a signal has ended it.
int exit_code_of(pid_t child) {
  const bool has_ended = ends(child);
  kill(child, SIGKILL);
  int status = 0;
  if (waitpid(child, &status, 0) != child || !has_ended || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

// A report with one suspect, where the supervisor wants it.
const std::string write_report =
    R"~(echo '{"name": "CUDA_ERROR_ASSERT", "code": 710, "call": "event_query(event)", "suspects":)~"
    R"( [{"operation": "launch of scale", "place": "stream 3", "site": "train.cpp:31"}]}' > "$COX_FAULT_REPORT"; )";

}  // namespace

TEST_CASE("cox run ends with the program's own exit code") {
  for (const int code : {0, 1, 3, 255}) {
    const Command command = run_script("exit " + std::to_string(code));
    CHECK(code_of(command) == code);
    CHECK(command.err.empty());
  }
}

TEST_CASE("cox run ends with 128 and the signal that ended the program") {
  const Command command = run_script("kill -KILL $$");
  CHECK(code_of(command) == 128 + SIGKILL);
  CHECK(command.err == "cox run: '/bin/sh' was ended by signal 9 (Killed)\n");
}

TEST_CASE("cox run hands the program its arguments as they are") {
  const TemporaryFile out("");
  const Command command = Command::run(
      {"run", "--", "/bin/sh", "-c", "printf '<%s>' \"$@\" > \"$0\"", out.path(), "--restarts", "", "--", "a b"});
  CHECK(code_of(command) == 0);
  CHECK(content(out) == "<--restarts><><--><a b>");
}

TEST_CASE("A program that cannot be run ends with 127 or 126 and one line") {
  const Command missing = Command::run({"run", "--", "/nowhere/program"});
  CHECK(code_of(missing) == 127);
  CHECK(missing.err == "cox run: cannot start '/nowhere/program': No such file or directory\n");
  const Command folder = Command::run({"run", "--", "/tmp"});
  CHECK(code_of(folder) == 126);
  CHECK(folder.err == "cox run: cannot start '/tmp': Permission denied\n");
}

TEST_CASE("After a GPU fault the program is started again, and told how often and why") {
  const TemporaryFile out("");
  const Variable path("OUT", out.path());
  const Variable before("COX_LAST_FAULT", "/nowhere");  // of another supervisor: says nothing of this program
  const Command command = run_script(
      "echo \"$COX_RESTART ${COX_LAST_FAULT:+$(cat $COX_LAST_FAULT | tr -d '\\n')}\" >> $OUT; "
      "[ $COX_RESTART = 2 ] && exit 4; " +
      write_report + "exit 86");
  CHECK(code_of(command) == 4);
  std::istringstream lines(content(out));
  std::string line;
  std::getline(lines, line);
  CHECK(line == "0 ");
  for (const char* count : {"1 {", "2 {"}) {
    std::getline(lines, line);
    CHECK_THAT(line, Catch::Matchers::StartsWith(count) && ContainsSubstring("CUDA_ERROR_ASSERT"));
  }
  CHECK_THAT(command.err, ContainsSubstring("cox run: '/bin/sh' ended with code 86: CUDA_ERROR_ASSERT (710) from "
                                            "event_query(event), first suspect launch of scale on stream 3 at "
                                            "train.cpp:31; restart 1 in 1ms (limit 10 within 1h)\n"));
  CHECK(lines_of(command.err) == 2);
}

TEST_CASE("A fault without a report, or with one that is none, restarts the program all the same") {
  const Command none = run_script("[ $COX_RESTART = 1 ] && exit ${#COX_LAST_FAULT}; exit 86");
  CHECK(code_of(none) == 0);
  CHECK(none.err == "cox run: '/bin/sh' ended with code 86; restart 1 in 1ms (limit 10 within 1h)\n");
  const Command broken = run_script("[ $COX_RESTART = 1 ] && exit 0; echo '{\"name\":' > $COX_FAULT_REPORT; exit 86");
  CHECK(code_of(broken) == 0);
  CHECK(broken.err == none.err);
}

TEST_CASE("The report's folder is the user's alone and gone when the program has ended") {
  const TemporaryFile out("");
  const Variable path("OUT", out.path());
  const Command command =
      run_script("d=$(dirname $COX_FAULT_REPORT); stat -c %a $d > $OUT; echo -n $d >> $OUT; " + write_report);
  CHECK(code_of(command) == 0);
  const std::string text = content(out);
  CHECK_THAT(text, Catch::Matchers::StartsWith("700\n/"));
  CHECK_FALSE(std::filesystem::exists(text.substr(4)));
}

TEST_CASE("No ending of cox run but SIGKILL leaves its folder behind") {
  const cox::test::ScratchFolder folder;
  const Variable temporary("TMPDIR", folder.path());
  for (const std::string options : {"", "--processes 2 "}) {
    const std::string run = "$COX run --backoff 1ms --backoff-max 1ms --restarts 2 " + options;
    CAPTURE(run);
    for (const char* program : {"true", "false", "/nowhere/program", "/bin/sh -c 'exit 86'", "/bin/sh -c 'kill -9 $$'",
                                "/bin/sh -c 'kill -TERM $PPID; exec sleep 1000'"})
      static_cast<void>(Shell::run(run + "-- " + program));
    // The signal arrives before the program has started, while it runs, or when it has ended.
    static_cast<void>(
        Shell::run("for length in 0 1 2 3 4 5 6 7 8 9; do for more in 0 2 4 6 8; do " + run +
                   "-- true & i=0; while [ $i -lt ${length}${more}00 ]; do i=$((i + 1)); done; kill -TERM $!; wait $!; "
                   "done; done"));
    CHECK(folder.files() == 0);
  }
}

TEST_CASE("cox run gives up when the limit of restarts is reached, and says so") {
  const TemporaryFile out("");
  const Variable path("OUT", out.path());
  const Command command = run_script("echo >> $OUT; exit 86", {"--restarts", "3", "--within", "2min"});
  CHECK(code_of(command) == 86);
  CHECK(lines_of(content(out)) == 4);
  CHECK_THAT(command.err,
             ContainsSubstring("restart 3 in 1ms") && ContainsSubstring("not restarted: the limit is 3 within 2min\n"));
  CHECK(code_of(run_script("exit 86", {"--restarts", "0"})) == 86);
}

TEST_CASE("Other ends restart the program only if --on names them") {
  const std::string twice = "[ $COX_RESTART = 1 ] && exit 0; ";
  CHECK(code_of(run_script(twice + "exit 87")) == 0);  // the loss of the world
  CHECK(code_of(run_script(twice + "exit 75", {"--on", "1,75"})) == 0);
  CHECK(code_of(run_script(twice + "exit 74", {"--on", "1,75"})) == 74);
  CHECK(code_of(run_script(twice + "exit 86", {"--on", "1,75"})) == 0);
  CHECK(code_of(run_script(twice + "kill -SEGV $$", {"--on", "signal"})) == 0);
  CHECK(code_of(run_script(twice + "kill -SEGV $$", {"--on", "1"})) == 128 + SIGSEGV);
}

TEST_CASE("A signal to cox run reaches the program, which is then not started again") {
  for (const char* signal : {"TERM", "INT", "HUP"}) {
    const std::string name(signal);
    CAPTURE(name);
    const Command command =
        run_script("trap 'kill -9 $! 2> /dev/null; exit 86' " + name + "; sleep 60 & kill -" + name + " $PPID; wait");
    CHECK(code_of(command) == 86);
    CHECK(command.err.empty());
  }
}

TEST_CASE("A program that does not end after a signal is killed after a time, or by the second signal") {
  const std::string script = "trap '' TERM INT; kill -TERM $PPID; ";
  const Command late = run_script(script + "exec sleep 1000", {"--kill-after", "10ms"});
  CHECK(code_of(late) == 128 + SIGKILL);
  CHECK(late.err == "cox run: '/bin/sh' has not ended within 10ms of the signal, and is sent SIGKILL\n");
  const Command repeated =
      run_script(script + "kill -TERM $PPID; sleep 1.1; kill -INT $PPID; exec sleep 1000", {"--kill-after", "1h"});
  CHECK(code_of(repeated) == 128 + SIGKILL);
  CHECK(repeated.err == "cox run: '/bin/sh' has not ended before the second signal, and is sent SIGKILL\n");
  CHECK(code_of(run_script("exit 0", {"--kill-after", "soon"})) == 2);
}

TEST_CASE("The processes that a program has started are sent its signals, and may end later than it") {
  const TemporaryFile out("");
  const Variable path("OUT", out.path());
  // The signal ends the outer shell; then the inner one saves.
  const Variable inner("INNER",
                       "trap 'while kill -0 $PPID 2> /dev/null; do :; done; echo saved > $OUT; exit 0' TERM; "
                       "kill -TERM $COX; while :; do :; done");
  const Command command = run_script("COX=$PPID /bin/sh -c \"$INNER\"; true");
  CHECK(code_of(command) == 128 + SIGTERM);
  CHECK(command.err.empty());
  CHECK(content(out) == "saved\n");
}

TEST_CASE("The processes that a program has started are sent SIGTERM only when it has ended, and SIGUSR1 not at all") {
  const TemporaryFile out("");
  const Variable path("OUT", out.path());
  // The program needs its helper to end.
  const Variable helper("HELPER", "trap 'echo asked >> $OUT; exit 0' TERM USR1; while [ ! -s $OUT ]; do :; done");
  const Command command = run_script(
      "trap : USR1; trap 'echo saves > $OUT; wait $!; exit 5' TERM; /bin/sh -c \"$HELPER\" & "
      "kill -USR1 $PPID; kill -TERM $PPID; while :; do :; done");
  CHECK(code_of(command) == 5);
  CHECK(content(out) == "saves\n");
}

TEST_CASE("A program that a signal ends before cox run gets the same signal is not the end of its group") {
  const TemporaryFile out("");
  const Variable path("OUT", out.path());
  const Variable inner("INNER",
                       "trap 'echo saved > $OUT; exit 0' TERM; echo ready > $OUT; "
                       "while kill -0 $PPID 2> /dev/null; do :; done; kill -TERM $COX; while :; do :; done");
  // As a service manager does, which signals all processes of a service one by one.
  const Command command =
      run_script("COX=$PPID /bin/sh -c \"$INNER\" & while [ ! -s $OUT ]; do :; done; kill -TERM $$");
  CHECK(code_of(command) == 128 + SIGTERM);
  CHECK(content(out) == "saved\n");
}

TEST_CASE("The processes that a program has started are killed with it") {
  const TemporaryFile out("");
  const Variable path("OUT", out.path());
  const Variable inner("INNER", "trap '' TERM; echo $$ > $OUT; kill -TERM $COX; exec sleep 1000");
  const Command command = run_script("COX=$PPID /bin/sh -c \"$INNER\"; true", {"--kill-after", "10ms"});
  CHECK(code_of(command) == 128 + SIGTERM);
  CHECK_THAT(command.err, ContainsSubstring("has not ended within 10ms of the signal, and is sent SIGKILL\n"));
  CHECK(ends(static_cast<pid_t>(std::stol(content(out)))));
}

TEST_CASE("cox run and its program end when the terminal of their session goes away") {
  const TemporaryFile ready("");
  ready.remove();
  REQUIRE(mkfifo(ready.path().c_str(), 0600) == 0);
  const std::string script =
      "trap 'kill -9 $! 2> /dev/null; exit 7' HUP; sleep 1000 & echo > " + ready.path() + "; wait";
  int terminal = -1;
  const pid_t leader = forkpty(&terminal, nullptr, nullptr, nullptr);
  REQUIRE(leader >= 0);
  if (leader == 0) {
    execl(COX_PROGRAM, "cox", "run", "--", "/bin/sh", "-c", script.c_str(), nullptr);
    _exit(99);
  }
  std::string line;
  std::ifstream pipe(ready.path());
  std::getline(pipe, line);  // blocks until the program has its trap
  close(terminal);
  CHECK(exit_code_of(leader) == 7);
}

TEST_CASE("A program reads from the terminal of cox run, and is sent the SIGINT of that terminal") {
  const TemporaryFile said("");
  said.remove();
  REQUIRE(mkfifo(said.path().c_str(), 0600) == 0);
  const std::string script = "trap 'exit 7' INT; read line; echo \"$line\" > " + said.path() + "; while :; do :; done";
  int terminal = -1;
  const pid_t supervisor = forkpty(&terminal, nullptr, nullptr, nullptr);
  REQUIRE(supervisor >= 0);
  if (supervisor == 0) {
    execl(COX_PROGRAM, "cox", "run", "--kill-after", "1h", "--", "/bin/sh", "-c", script.c_str(), nullptr);
    _exit(99);
  }
  REQUIRE(write(terminal, "hello\n", 6) == 6);
  std::string line;
  std::ifstream pipe(said.path());
  std::getline(pipe, line);
  CHECK(line == "hello");
  REQUIRE(write(terminal, "\x03", 1) == 1);  // Ctrl-C
  CHECK(exit_code_of(supervisor) == 7);
  close(terminal);
}

TEST_CASE("A terminal stops cox run with its program, and both continue together") {
  const TemporaryFile said("");
  said.remove();
  REQUIRE(mkfifo(said.path().c_str(), 0600) == 0);
  const std::string script = "trap 'exit 7' USR1; echo $$ > " + said.path() + "; while :; do :; done";
  const pid_t supervisor = fork();
  REQUIRE(supervisor >= 0);
  if (supervisor == 0) {
    setpgid(0, 0);  // as the job of a shell, which this process is
    execl(COX_PROGRAM, "cox", "run", "--", "/bin/sh", "-c", script.c_str(), nullptr);
    _exit(99);
  }
  std::string line;
  std::ifstream pipe(said.path());
  std::getline(pipe, line);
  kill(supervisor, SIGTSTP);
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(supervisor), &info, WSTOPPED) == 0);
  CHECK(info.si_status == SIGTSTP);
  const std::string state = "/proc/" + line + "/status";
  while (text_of(state).find("State:\tT") == std::string::npos) {
  }
  kill(supervisor, SIGUSR1);
  kill(supervisor, SIGCONT);
  CHECK(exit_code_of(supervisor) == 7);
}

TEST_CASE("SIGUSR1 reaches the program and leaves the rest as it is") {
  const Command command = run_script(
      "[ $COX_RESTART = 1 ] && exit 0; trap 'kill -9 $! 2> /dev/null; exit 86' USR1; sleep 60 & kill -USR1 $PPID; "
      "wait");
  CHECK(code_of(command) == 0);
}

TEST_CASE("A signal during the back-off ends cox run at once") {
  // The signal comes when the supervisor has seen the end of the program, which then is no process any more.
  const Command command = run_script("(while kill -0 $$ 2> /dev/null; do :; done; kill -TERM $PPID) & exit 86",
                                     {"--backoff", "1h", "--backoff-max", "1h"});
  CHECK(code_of(command) == 128 + SIGTERM);
  CHECK_THAT(command.err, ContainsSubstring("restart 1 in 1h"));
}

TEST_CASE("The program starts with no signal blocked that was not blocked before") {
  CHECK(code_of(run_script("grep -q '^SigBlk:.0*$' /proc/self/status")) == 0);
}

TEST_CASE("The supervisor may open as many files as the system allows, and its program as many as before") {
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit less{.rlim_cur = std::min<rlim_t>(200, limit.rlim_max), .rlim_max = limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &less) == 0);
  const Command command =
      run_script("[ $(ulimit -Sn) = 200 ] && awk '/Max open files/ { exit $4 != $5 }' /proc/$PPID/limits");
  rlimit after{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &after) == 0);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(code_of(command) == 0);
  CHECK(after.rlim_cur == less.rlim_cur);
}

TEST_CASE("A program does not outlive the thread that runs it") {
  std::unique_ptr<cox::tools::ChildProcess> child;
  std::thread([&] {
    child = std::make_unique<cox::tools::ChildProcess>(std::vector<std::string>{"sleep", "60"},
                                                       cox::tools::EnvironmentChanges{});
  }).join();
  siginfo_t info{};
  REQUIRE(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT) == 0);
  CHECK(child->end() == cox::tools::ProgramEnd{.code = 0, .signal = SIGKILL});
}

TEST_CASE("A program that still runs is killed with the object that stands for it") {
  {
    const cox::tools::ChildProcess child({"sleep", "60"}, {});
  }
  siginfo_t info{};
  CHECK(waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == -1);  // no child is left
}

TEST_CASE("A supervisor reports what it runs, and starts it again on --reload") {
  const std::string supervisor = std::to_string(getpid());
  Command ended{};
  std::thread runs([&ended] {
    // The first run lasts until SIGTERM, the second one ends by itself.
    ended = run_script("[ $COX_RESTART = 1 ] && exit 7; trap 'exit 0' TERM; while :; do :; done");
  });
  const auto query = [&](const char* what) { return Command::run({"run", what, supervisor}); };
  Command status = query("--status");
  while (code_of(status) != 0) status = query("--status");
  CHECK_THAT(status.out, ContainsSubstring("program: /bin/sh, process ") && ContainsSubstring("restarts: 0\n") &&
                             ContainsSubstring("kept memory: none\n"));
  const Command reload = query("--reload");
  CHECK_THAT(reload.out, ContainsSubstring("has been sent SIGTERM; the program is started again when it has ended\n"));
  runs.join();
  CHECK(code_of(ended) == 7);
  CHECK_THAT(ended.err, ContainsSubstring("; reload with "));
  CHECK_THAT(query("--status").err, ContainsSubstring("no supervisor in process " + supervisor));
  CHECK(code_of(Command::run({"run", "--status", "many"})) == 2);
}
