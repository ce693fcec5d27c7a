#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/tools/cox/doctor/check.hpp>
#include <coxswain/tools/cox/doctor/nccl_versions.hpp>

namespace cox::tools {
namespace {

using Severity = Finding::Severity;

std::string cuda_version(int version) {
  return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Finding driver(const Facts& facts) {
  if (!facts.driver.found)
    return {Severity::Wrong, "driver", facts.driver.error,
            "install NVIDIA's driver 550 or newer (CUDA 12.4); start a container with its GPUs (--gpus all)"};
  if (facts.gpus.empty())
    return {Severity::Wrong, "driver", cuda_version(facts.driver.version) + ", but it shows no device to this process",
            "check whether nvidia-smi lists GPUs, and whether CUDA_VISIBLE_DEVICES hides them"};
  return {Severity::Ok, "driver", cuda_version(facts.driver.version), ""};
}

Finding nvrtc(const Facts& facts) {
  if (!facts.nvrtc.found)
    return {Severity::Wrong, "NVRTC", facts.nvrtc.error,
            "install the CUDA toolkit's libnvrtc, or the Python wheel nvidia-cuda-nvrtc"};
  if (facts.driver.found && facts.nvrtc.version / 1000 > facts.driver.version / 1000)
    return {Severity::Wrong, "NVRTC",
            cuda_version(facts.nvrtc.version) + ": the code that it generates is too new for the driver (" +
                cuda_version(facts.driver.version) + ")",
            "install NVRTC of the driver's major version, or a newer driver"};
  return {Severity::Ok, "NVRTC", cuda_version(facts.nvrtc.version), ""};
}

Finding nccl(const Facts& facts) {
  constexpr const char* install = "install libnccl2 of NVIDIA's packages, or the Python wheel nvidia-nccl";
  if (!facts.nccl.found && facts.gpus.size() < 2 && !facts.names_nccl)
    return {Severity::Ok, "NCCL", "not found, and not needed for one GPU", ""};
  if (!facts.nccl.found) return {Severity::Wrong, "NCCL", facts.nccl.error, install};
  const std::string found = detail::nccl_version_text(facts.nccl.version) + ", " + facts.nccl.file;
  const std::string_view trouble = known_issue(facts.nccl.version, facts.arm);
  if (trouble.empty()) return {Severity::Ok, "NCCL", found, ""};
  return {Severity::Wrong, "NCCL", found + ": " + std::string(trouble), install};
}

}  // namespace

void check_libraries(const Facts& facts, Findings& findings) {
  if (!facts.cuda_server) {
    findings.push_back({Severity::Wrong, "CUDA server", "this build has none, so it uses no GPU",
                        "install the headers of CUDA 12.4 or newer, and build again"});
    return;
  }
  findings.push_back(driver(facts));
  const bool judged = facts.driver.found;
  if (judged || facts.nvrtc.found || facts.names_nvrtc) findings.push_back(nvrtc(facts));
  if (judged || facts.nccl.found || facts.names_nccl) findings.push_back(nccl(facts));
}

}  // namespace cox::tools
