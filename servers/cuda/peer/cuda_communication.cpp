#include <coxswain/servers/cuda/peer/cuda_communication.hpp>

#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/cuda/peer/communication_routes.hpp>

namespace cox {

namespace {

// All facts except those about NCCL.
detail::CommunicationFacts facts_of(const std::vector<DeviceId>& devices) {
  detail::CommunicationFacts facts;
  for (const DeviceId device : devices) {
    facts.devices.push_back("cuda:" + std::to_string(device.index));
    std::vector<CudaPeerFacts>& peers = facts.peers.emplace_back();
    for (const DeviceId peer : devices)
      peers.push_back(peer == device ? CudaPeerFacts{} : describe_cuda_peer(device, peer));
  }
  facts.peer_memory = settings().get<bool>("collectives.peer_memory");
  facts.reproducible = settings().get<bool>("collectives.reproducible");
  return facts;
}

}  // namespace

bool reduces_in_peer_memory(const std::vector<DeviceId>& devices) {
  return !detail::why_not_in_peer_memory(facts_of(devices));
}

std::vector<CudaRoute> explain_cuda_communication(const std::vector<DeviceId>& devices) {
  detail::CommunicationFacts facts = facts_of(devices);
  const detail::FoundNccl& found = detail::find_nccl();
  if (found.nccl != nullptr) {
    facts.nccl = "NCCL " + detail::nccl_version_text(found.nccl->version) + " (" + found.nccl->file + ")";
  } else {
    facts.why_no_nccl = found.error;
  }
  if (devices.size() < 2) return {};
  return detail::communication_routes(facts);
}

}  // namespace cox
