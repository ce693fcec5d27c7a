#include <coxswain/tests/tools/command.hpp>

#include <coxswain/tools/cox/device_list.hpp>
#include <coxswain/tools/cox/version.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

using cox::tools::Command;
using cox::tools::ExitCode;

namespace {

struct Refused {
  std::vector<std::string> arguments;
  std::string message;  // part of it
};

void require_refused(const Refused& refused, ExitCode code) {
  const Command command = Command::run(refused.arguments);
  CAPTURE(refused.arguments, command.err);
  CHECK(command.code == code);
  CHECK(command.out.empty());
  CHECK(std::count(command.err.begin(), command.err.end(), '\n') == 1);
  CHECK(command.err.find(refused.message) != std::string::npos);
}

}  // namespace

TEST_CASE("A bad argument ends with code 2 and one line that says which and what was expected") {
  const std::vector<Refused> cases{
      {{}, "cox: a subcommand is needed: bench, config, devices, doctor, run, stress, trace or world; see cox --help"},
      {{"strees"}, "strees"},
      {{"stress", "--speed", "3"}, "--speed"},
      {{"stress", "--clients", "0"}, "--clients: '0' is not a whole number from 1 to 1024"},
      {{"stress", "--clients", "many"}, "--clients: 'many' is not a whole number"},
      {{"stress", "--clients", "1025"}, "--clients: '1025' is not a whole number from 1 to 1024"},
      {{"stress", "--seconds", "0"}, "--seconds: '0' is not more than 0"},
      {{"stress", "--seconds", "-1"}, "--seconds: '-1' is not more than 0"},
      {{"stress", "--seconds", "nan"}, "--seconds: 'nan' is not more than 0"},
      {{"stress", "--operations", "0"}, "--operations: '0' is not a whole number from 1 to"},
      {{"stress", "--operations", "5", "--seconds", "5"}, "excludes"},
      {{"stress", "--seed", "-3"}, "--seed: '-3' is not a whole number"},
      {{"stress", "--devices", "gpu:1"}, "'gpu:1' is none of host, host:COUNT, cuda, cuda:INDEX,INDEX"},
      {{"stress", "--devices", "host:0"}, "'0' is not a whole number from 1 to 256"},
      {{"stress", "--devices", "host:"}, "'' is not a whole number from 1 to 256"},
      {{"stress", "--devices", "host:257"}, "'257' is not a whole number from 1 to 256"},
      {{"stress", "--devices", "host:two"}, "'two' is not a whole number"},
      {{"stress", "--devices", "cuda:0,x"}, "'x' is not a whole number"},
      {{"stress", "--mix", "submit"}, "'submit' is not of the form NAME=VALUE"},
      {{"stress", "--mix", "submit=-1"}, "'-1' is not a whole number"},
      {{"stress", "--mix", "submit=1,submit=2"}, "'submit' is given twice"},
      {{"stress", "--mix", "submit=0,read=0"}, "nothing to do"},
      {{"stress", "--mix", "fly=1"},
       "'fly' is none of submit, blocking, exclusive, create, read, launch, tensor, graph, profile, transfer, "
       "all_reduce, all_gather, reduce_scatter, broadcast or all_to_all"},
      {{"stress", "--mix", "submit=1,"}, "'' is not of the form NAME=VALUE"},
      {{"stress", "--mix", "submit=1,transfer=3", "--devices", "host:1"},
       "--mix: transfers and collectives need two devices or more"},
      {{"stress", "--payload", "64:"}, "'' is not a size such as 64, 4KiB or 1MiB"},
      {{"stress", "--payload", "1XB"}, "'1XB' is not a size"},
      {{"stress", "--payload", "1MiB:64"}, "begins above its end"},
      {{"stress", "--payload", "1"}, "begins below 4 B"},
      {{"stress", "--payload", "64:1GiB", "--devices", "host:1"}, "--payload: buffers of"},
      {{"stress", "--fault", "throw=2"}, "'2' is not a number from 0 to 1"},
      {{"stress", "--fault", "missing=0.6,shutdown=0.6"}, "adds up to more than 1"},
      {{"stress", "--fault", "throw=0.6,cancel=0.6"}, "adds up to more than 1"},
      {{"stress", "--fault", "explode=0.1"},
       "'explode' is none of throw, cancel, expire, stall, missing, mismatch, shutdown, leave or poison"},
      {{"stress", "--json", "/no/such/folder/out.json"}, "--json: cannot write '/no/such/folder/out.json'"},
      {{"stress", "--flight-recorder", "/no/such/folder/out.json"},
       "--flight-recorder: cannot write '/no/such/folder/out.json'"},
      {{"stress", "--draw", "out.trace"}, "--draw"},
      {{"run"}, "cox run: a program is needed: cox run [options] -- PROGRAM ARGUMENTS"},
      {{"run", "--"}, "a program is needed"},
      {{"run", "train"}, "cox run: '--' is expected before the program: cox run [options] -- train"},
      {{"run", "--restarts", "3", "train", "--config", "run.toml"}, "[options] -- train"},
      {{"run", "--restrats", "3", "train"}, "there is no '--restrats'; the nearest is --restarts"},
      {{"run", "--status", "--processes", "2"}, "--status is for a `cox run` that runs: not together with --processes"},
      {{"run", "--status", "--reload"}, "--status is for a `cox run` that runs: not together with --reload"},
      {{"run", "--reload", "--", "true"}, "--reload is for a `cox run` that runs: not together with a program"},
      {{"run", "--successors", "--", "true"}, "--successors is for --processes 2 or more"},
      {{"run", "--grace", "1s", "--", "true"}, "--grace is for --processes 2 or more"},
      {{"run", "--node", "1", "--", "true"},
       "--node, --leader, --token-file and --join-within are for --nodes 2 or more"},
      {{"run", "--processes", "2", "--join-within", "1s", "--", "true"}, "--join-within are for --nodes 2 or more"},
      {{"run", "--", ""}, "a program is needed"},
      {{"run", "--restarts", "-1", "--", "true"}, "--restarts: '-1' is not a whole number from 0 to 1000000"},
      {{"run", "--within", "0s", "--", "true"}, "--within: '0s' is not at least 1ns"},
      {{"run", "--backoff", "1", "--", "true"}, "--backoff: '1' is not a time such as 500ms, 10s, 5min or 1h"},
      {{"run", "--backoff", "2s", "--backoff-max", "1s", "--", "true"}, "--backoff-max: '1s' is not at least 2s"},
      {{"run", "--on", "1,", "--", "true"}, "--on: '' is neither an exit code from 1 to 255 nor 'signal'"},
      {{"run", "--on", "256", "--", "true"}, "--on: '256' is neither"},
      {{"run", "--on", "0", "--", "true"}, "--on: '0' is neither"},
      {{"devices", "--", "true"}, "cox devices: only cox run takes '--' and a program"},
      {{"devices", "--devices", "host:x"}, "cox devices: --devices: 'x' is not a whole number"},
  };
  for (const Refused& refused : cases) require_refused(refused, ExitCode::BadArguments);
}

TEST_CASE("A device that cannot be had ends with code 3 and one line that says why") {
  require_refused({{"devices", "--devices", "cuda:65535"}, "cox devices: --devices cuda:65535: "}, ExitCode::NoDevice);
  if (!cox::tools::cuda_devices().empty()) {
    require_refused({{"devices", "--devices", "cuda:0,65535"}, "there is no cuda:65535, the last is cuda:"},
                    ExitCode::NoDevice);
    return;
  }
  for (const char* devices : {"cuda", "cuda:0", "cuda:0,1"}) {
    require_refused({{"stress", "--devices", devices}, "no CUDA device is available"}, ExitCode::NoDevice);
    require_refused({{"devices", "--devices", devices}, "no CUDA device is available"}, ExitCode::NoDevice);
  }
}

TEST_CASE("A bad argument is told before a device that cannot be had") {
  require_refused({{"devices", "--devices", "cuda:1,1"}, "'1' is given twice"}, ExitCode::BadArguments);
  require_refused({{"stress", "--devices", "cuda", "--mix", "fly=1"}, "'fly'"}, ExitCode::BadArguments);
}

TEST_CASE("Help and version go to the output and end with code 0") {
  const Command version = Command::run({"--version"});
  CHECK(version.code == ExitCode::Ok);
  CHECK(version.out == "cox " + std::string(cox::tools::version) + "\n");

  const Command help = Command::run({"--help"});
  CHECK(help.code == ExitCode::Ok);
  CHECK(help.out.find("devices") != std::string::npos);
  CHECK(help.out.find("stress") != std::string::npos);

  const Command stress = Command::run({"stress", "--help"});
  CHECK(stress.code == ExitCode::Ok);
  for (const char* option : {"--devices", "--seconds", "--operations", "--clients", "--seed", "--mix", "--payload",
                             "--fault", "--json", "--flight-recorder", "--quiet"})
    CHECK(stress.out.find(option) != std::string::npos);
}
