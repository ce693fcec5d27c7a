// Kept memory of GPUs from run to run: tests/programs/kept_stand_in_worker.cpp under cox run.
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>
#include <coxswain/tests/tools/command.hpp>

#include <fstream>
#include <map>
#include <string>
#include <vector>

using cox::test::TemporaryFile;
using cox::tools::Command;

TEST_CASE("Kept memory of GPUs has the reported contents, whenever the process is killed or the GPUs fault") {
  const std::string mode = GENERATE("in_place", "double");
  const std::string fault = GENERATE("kill", "gpu");
  const TemporaryFile file("");
  constexpr int faults = 10;
  // The last run compares the memory with the epoch that it finds; exit code 3: they differ.
  const Command command =
      Command::run({"run", "--restarts", "1000", "--backoff", "1ms", "--backoff-max", "1ms", "--", "env",
                    "COX_CUDA_DRIVER=" COX_FAKE_CUDA, "COX_COLLECTIVES_NCCL=" COX_FAKE_NCCL, COX_KEPT_STAND_IN_WORKER,
                    mode, "10", std::to_string(faults), file.path(), fault});
  CAPTURE(mode, fault, command.err);
  CHECK(static_cast<int>(command.code) == 0);
  std::map<std::string, int> lines;  // by the first word
  std::ifstream reports(file.path());
  for (std::string line; std::getline(reports, line);) ++lines[line.substr(0, line.find_first_of(" :"))];
  CHECK(lines["empty"] >= 1);
  CHECK(lines["whole"] >= 1);
  CHECK(lines["fault"] == faults);
  if (mode == "double") CHECK(lines["torn"] == 0);
}

TEST_CASE("After a memory error of a GPU the next process but one finds its memory lost, and that of the others held") {
  const TemporaryFile file("");
  const std::string script = R"script(case $COX_RESTART in
    0) "$0" in_place 3 0 "$1" && exit 75 ;;
    1) COX_FAKE_NVML_PENDING=1 "$0" in_place 3 0 "$1" || exit 75 ;;
    2) "$0" in_place 3 0 "$1" ;;
  esac)script";
  const Command command =
      Command::run({"run", "--on", "75", "--backoff", "1ms", "--backoff-max", "1ms", "--", "env",
                    "COX_CUDA_DRIVER=" COX_FAKE_CUDA, "COX_COLLECTIVES_NCCL=" COX_FAKE_NCCL,
                    "COX_CUDA_NVML=" COX_FAKE_NVML, "sh", "-c", script, COX_KEPT_STAND_IN_WORKER, file.path()});
  CAPTURE(command.err);
  CHECK(static_cast<int>(command.code) == 0);
  std::ifstream reports(file.path());
  std::vector<std::string> states;
  for (std::string line; std::getline(reports, line);)
    if (!line.starts_with("step")) states.push_back(line);
  CHECK(states == std::vector<std::string>{"empty", "torn: cuda:0 is lost, cuda:1 at epoch 3"});
}
