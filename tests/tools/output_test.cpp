#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/tools/command.hpp>
#include <coxswain/tests/tools/scratch_folder.hpp>
#include <coxswain/tests/tools/shell.hpp>

#include <nlohmann/json.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

using Catch::Matchers::ContainsSubstring;
using cox::test::ScratchFolder;
using cox::tools::Command;
using cox::tools::ExitCode;
using cox::tools::Shell;
using Json = nlohmann::json;

namespace {

const std::string stress = "$COX stress --devices host:1 --clients 2 --payload 64:4KiB --operations 200 ";

}  // namespace

TEST_CASE("A command whose standard output cannot be written ends with code 1 and says so") {
  const std::string command = GENERATE(as<std::string>(), "$COX config", "$COX config --json -",
                                       "$COX devices --devices host:1", "$COX bench --devices host:1 --seconds 0.01",
                                       "$COX --help", "$COX --version", stress, stress + "--quiet");
  const std::string target = GENERATE(as<std::string>(), "> /dev/full", ">&-");
  CAPTURE(command, target);
  const Shell program = Shell::run(command + " " + target);
  CHECK(program.code == 1);
  CHECK_THAT(program.output, ContainsSubstring("standard output could not be written\n"));
}

TEST_CASE("Results are in their files when no process reads standard output any more") {
  const ScratchFolder folder;
  const std::string command =
      GENERATE(as<std::string>(), stress, "$COX bench --devices host:1 --seconds 0.01", "$COX config");
  CAPTURE(command);
  // The reader has ended before the command starts: its first write meets a pipe without a reader.
  const Shell program =
      Shell::run("cd " + folder.path() + "; mkfifo pipe; exec 3<>pipe 4>pipe 3<&-; " + command + " --json j.json >&4");
  CHECK(program.code == 1);
  CHECK(Json::parse(folder.text("j.json")).is_object());
  CHECK(folder.files() == 2);  // nothing but the pipe and the result
}

TEST_CASE("A result that does not fit on the disk leaves the file as it was, and the code says so") {
  const ScratchFolder folder;
  std::ofstream(folder.path() + "/j.json") << "old";
  // The limit of a file's size stands for the disk.
  const Shell program = Shell::run(
      "cd " + folder.path() + "; ulimit -f 0; $COX config --json j.json | cat; $COX config --json j.json > /dev/null");
  CHECK(program.code == 1);
  CHECK_THAT(program.output, ContainsSubstring("--json: 'j.json' could not be written: File too large"));
  CHECK(folder.text("j.json") == "old");
  CHECK(folder.files() == 1);
  CHECK(Shell::run("$COX config --json /dev/full > /dev/null").code == 1);
}

TEST_CASE("A replaced file keeps its mode, and a symbolic link to it stays one") {
  const ScratchFolder folder;
  const std::string file = folder.path() + "/real.json";
  const std::string link = folder.path() + "/link.json";
  std::ofstream(file) << "old";
  REQUIRE(::chmod(file.c_str(), 0640) == 0);
  std::filesystem::create_symlink("real.json", link);
  REQUIRE(Command::run({"config", "--json", link}).code == ExitCode::Ok);
  CHECK(std::filesystem::is_symlink(link));
  CHECK(Json::parse(folder.text("real.json")).is_object());
  CHECK(std::filesystem::status(file).permissions() == static_cast<std::filesystem::perms>(0640));
}

TEST_CASE("A refused command creates none of its output files") {
  const ScratchFolder folder;
  const Command command =
      Command::run({"stress", "--devices", "nothing", "--json", folder.path() + "/j", "--trace", folder.path() + "/t"});
  CHECK(command.code == ExitCode::BadArguments);
  CHECK(folder.files() == 0);
}

TEST_CASE("Two results in one file are refused") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/result";
  const Command command =
      Command::run({"stress", "--devices", "host:1", "--json", path, "--metrics", folder.path() + "/./result"});
  CHECK(command.code == ExitCode::BadArguments);
  CHECK(command.err == "cox stress: --json and --metrics: both name the file '" + path + "'\n");
}

TEST_CASE("Every command gives its result on standard output alone with --json -") {
  const std::string command =
      GENERATE(as<std::string>(), stress + "--quiet", "$COX bench --devices host:1 --seconds 0.01", "$COX config",
               "$COX devices --devices host:1", "$COX doctor");
  CAPTURE(command);
  const Shell program = Shell::run(command + " --json -");
  CHECK_FALSE(Json::parse(program.output, nullptr, false).is_discarded());
}

TEST_CASE("A command that gets too little memory ends with code 3 and says so") {
  const std::string limit = GENERATE(as<std::string>(), "ulimit -v 150000", "ulimit -s 64");
  const std::string command = GENERATE(as<std::string>(), stress, "$COX bench --devices host:4 --seconds 0.01");
  CAPTURE(limit, command);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  if (limit == "ulimit -v 150000") return;  // the sanitizers' own memory is larger
#endif
  const Shell program = Shell::run(limit + "; " + command);
  CAPTURE(program.output);
  CHECK(program.code == 3);
  CHECK_THAT(program.output, ContainsSubstring("cox") || ContainsSubstring("stopped: this process cannot get"));
}

TEST_CASE("Words that are near a command or an option are answered with it") {
  CHECK(Command::run({"stres"}).err == "cox: there is no 'stres'; the nearest is stress\n");
  CHECK(Command::run({"bench", "--sec", "1"}).err == "cox bench: there is no '--sec'; the nearest is --seconds\n");
  CHECK(Command::run({"bench", "--fliter=x"}).err == "cox bench: there is no '--fliter'; the nearest is --filter\n");
  CHECK_THAT(Command::run({"bench", "--else"}).err, ContainsSubstring("--else"));
}

TEST_CASE("cox stress refuses settings with which it would see violations that are none") {
  const std::string setting = GENERATE(as<std::string>(), "COX_DEVICE_THREAD_QUEUE_POLICY=fail",
                                       "COX_COLLECTIVES_MAX_AHEAD=1", "COX_COLLECTIVES_RECORDED=16777216");
  const Shell program = Shell::run(setting + " $COX stress --devices host:4 --operations 1");
  CAPTURE(setting);
  CHECK(program.code == 2);
  CHECK_THAT(program.output, ContainsSubstring("(environment " + setting.substr(0, setting.find('=')) + "): "));
  CHECK(std::ranges::count(program.output, '\n') == 1);
}

TEST_CASE("cox stress explains copies that found no page-locked memory, and holds") {
  const Shell program = Shell::run("COX_HOST_PINNED_MEMORY=1B " + stress + "--mix create=1");
  CAPTURE(program.output);
  CHECK(program.code == 0);
  CHECK_THAT(program.output, ContainsSubstring("copies without page-locked memory"));
}

TEST_CASE("cox config and cox devices write neither the log nor the trace that the settings name") {
  const ScratchFolder folder;
  const std::string command = GENERATE(as<std::string>(), "config", "devices --devices host:1");
  CHECK(Shell::run("cd " + folder.path() + "; COX_LOG_FILE=l COX_LOG_LEVEL=trace COX_TRACE_FILE=t $COX " + command)
            .code == 0);
  CHECK(folder.files() == 0);
}

TEST_CASE("A settings file that is a pipe or has no end is refused, and control characters do not reach the terminal") {
  CHECK(Shell::run("COX_CONFIG=/dev/zero $COX config").code == 2);
  const ScratchFolder folder;
  const Shell program =
      Shell::run("cd " + folder.path() + "; printf '\"\\033[31m\" = 1\n' > coxswain.toml; $COX config");
  CHECK(program.code == 2);
  CHECK(program.output.find('\033') == std::string::npos);
  CHECK(Shell::run("cd " + folder.path() + "; rm coxswain.toml; mkfifo coxswain.toml; $COX config").code == 2);
}

TEST_CASE("Trace and dump files that cannot be written are named on standard error when there is no log") {
  const Shell trace = Shell::run("COX_TRACE_FILE=/dev/full " + stress + "--quiet");
  CHECK_THAT(trace.output, ContainsSubstring("coxswain: cannot write the trace file '/dev/full'\n"));
  const Shell dump = Shell::run(
      "COX_COLLECTIVES_DUMP_FILE=/nowhere/dump $COX stress --devices host:2 --clients 2 --payload 64:4KiB "
      "--operations 200 --mix all_reduce=1 --fault mismatch=0.2 --quiet");
  CHECK_THAT(dump.output, ContainsSubstring("coxswain: cannot write the flight recorders to '/nowhere/dump'\n"));
}
