#include <coxswain/tools/cox/doctor/gather.hpp>

#ifdef COX_HAS_CUDA
#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/runtime/config/process_settings.hpp>

#include <string>
#endif

namespace cox::tools {

#ifdef COX_HAS_CUDA
namespace {

NcclFacts nccl_facts() {
  const detail::FoundNccl& found = detail::find_nccl();
  if (found.nccl == nullptr) return {.found = false, .version = 0, .file = {}, .error = found.error};
  return {.found = true, .version = found.nccl->version, .file = found.nccl->file, .error = {}};
}

}  // namespace

void gather_cuda(Facts& facts) {
  facts.driver = describe_cuda_driver();
  facts.nvrtc = describe_nvrtc();
  facts.nccl = nccl_facts();
  facts.names_nvrtc = !settings().get<std::string>("compilation.nvrtc").empty();
  facts.names_nccl = !settings().get<std::string>("collectives.nccl").empty();
  const std::vector<DeviceId> devices = enumerate_cuda_devices();
  for (const DeviceId device : devices) {
    facts.gpus.push_back(describe_cuda_device(device));
    std::vector<CudaPeerFacts>& row = facts.peers.emplace_back();
    for (const DeviceId peer : devices)
      row.push_back(peer == device ? CudaPeerFacts{} : describe_cuda_peer(device, peer));
  }
}
#else
void gather_cuda(Facts& facts) { facts.cuda_server = false; }
#endif

}  // namespace cox::tools
