#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/tools/cox/doctor/check.hpp>

namespace cox::tools {
namespace {

using Severity = Finding::Severity;
using Use = CudaDeviceFacts::Use;

std::string name_of(std::size_t index) { return "cuda:" + std::to_string(index); }

std::string describe(const CudaDeviceFacts& gpu) {
  std::string text = gpu.name + ", " + format_byte_count(gpu.memory) + ", " + gpu.bus_id + ", compute capability " +
                     std::to_string(gpu.compute_major) + "." + std::to_string(gpu.compute_minor);
  text += gpu.ecc ? ", ECC" : ", no ECC";
  return text + (gpu.numa_node ? ", NUMA node " + std::to_string(*gpu.numa_node) : ", NUMA node not known");
}

Finding gpu(std::size_t index, const CudaDeviceFacts& facts) {
  const std::string text = describe(facts);
  const std::string fix = "nvidia-smi -i " + facts.bus_id + " -c DEFAULT";
  if (facts.use == Use::Nobody)
    return {Severity::Wrong, name_of(index), text + ": no process may use it (compute mode PROHIBITED)", fix};
  if (facts.use == Use::OneProcess)
    return {Severity::Warning, name_of(index),
            text + ": only one process at a time may use it (compute mode EXCLUSIVE_PROCESS)", fix};
  return {Severity::Ok, name_of(index), text, ""};
}

// The pairs without direct access: "cuda:0 to cuda:1, cuda:1 to cuda:0, ..."; empty if there are none.
std::string unreachable(const Facts& facts) {
  std::string pairs;
  for (std::size_t from = 0; from < facts.peers.size(); ++from) {
    for (std::size_t to = 0; to < facts.peers[from].size(); ++to) {
      if (from == to || facts.peers[from][to].access) continue;
      pairs += (pairs.empty() ? "" : ", ") + name_of(from) + " to " + name_of(to);
    }
  }
  return pairs;
}

}  // namespace

void check_gpus(const Facts& facts, Findings& findings) {
  for (std::size_t i = 0; i < facts.gpus.size(); ++i) findings.push_back(gpu(i, facts.gpus[i]));
  if (facts.gpus.size() < 2) return;
  const std::string pairs = unreachable(facts);
  if (pairs.empty()) {
    findings.push_back({Severity::Ok, "peers", "every GPU can access the memory of every other", ""});
  } else {
    findings.push_back({Severity::Warning, "peers", "no direct access, so copies go through host memory: " + pairs,
                        "run nvidia-smi topo -p2p r; turn off PCI ACS and the IOMMU, or give the virtual machine "
                        "GPUs of one NVLink domain"});
  }
}

}  // namespace cox::tools
