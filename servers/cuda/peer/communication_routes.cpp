#include <coxswain/servers/cuda/peer/communication_routes.hpp>

#include <coxswain/servers/cuda/peer/peer_kernels.hpp>

#include <cstddef>
#include <optional>

namespace cox::detail {
namespace {

std::string size_name(std::size_t bytes) {
  constexpr std::size_t mebibyte = std::size_t{1} << 20U;
  return bytes % mebibyte == 0 ? std::to_string(bytes / mebibyte) + " MiB" : std::to_string(bytes >> 10U) + " KiB";
}

CudaRoute transfer_way(const CommunicationFacts& facts, std::size_t a, std::size_t b) {
  CudaRoute route{.what = "transfers between " + facts.devices[a] + " and " + facts.devices[b], .route = {}, .why = {}};
  const CudaPeerFacts& there = facts.peers[a][b];
  if (there.access && facts.peers[b][a].access) {
    route.route = "direct peer copy";
    route.why = "each GPU can access the other's memory, over a link of rank " + std::to_string(there.rank);
  } else {
    route.route = "peer copy through host memory, by the driver";
    route.why = "the driver grants no direct access; cox doctor reports likely causes";
  }
  return route;
}

}  // namespace

std::optional<std::string> why_not_in_peer_memory(const CommunicationFacts& facts) {
  if (!facts.peer_memory) return "the setting collectives.peer_memory is false";
  if (facts.devices.size() > PeerKernels::max_ranks)
    return "kernels in peer memory support at most " + std::to_string(PeerKernels::max_ranks) + " GPUs";
  for (std::size_t from = 0; from < facts.devices.size(); ++from)
    for (std::size_t to = 0; to < facts.devices.size(); ++to)
      if (from != to && !facts.peers[from][to].access)
        return facts.devices[from] + " cannot access the memory of " + facts.devices[to];
  return std::nullopt;
}

std::vector<CudaRoute> communication_routes(const CommunicationFacts& facts) {
  std::vector<CudaRoute> ways;
  for (std::size_t a = 0; a < facts.devices.size(); ++a)
    for (std::size_t b = a + 1; b < facts.devices.size(); ++b) ways.push_back(transfer_way(facts, a, b));
  if (facts.nccl.empty()) {
    ways.push_back({"collectives", "refused", facts.why_no_nccl});
    return ways;
  }
  const auto why_not = why_not_in_peer_memory(facts);
  const PeerKernelLimits& limits = peer_kernel_limits(facts.devices.size());
  const std::string what = facts.reproducible && why_not ? "all_reduce of integers up to " : "all_reduce up to ";
  const std::string small = what + size_name(limits.all_reduce) + ", or of a group of at most that size in total";
  const std::string blocks = "all_gather and reduce_scatter up to " + size_name(limits.blocks) +
                             " in total, broadcast up to " + size_name(limits.broadcast);
  const std::string not_nccls = "reductions of 16-bit integers, means of integers";
  if (facts.reproducible) {
    const std::string why = "collectives.reproducible is true, and NCCL does not reduce in the order of ranks";
    ways.push_back({"reductions of floating-point elements",
                    why_not ? "refused"
                            : "kernels in peer memory, at any size, also in groups of reductions; of 8-bit elements, "
                              "and in groups with other operations: refused",
                    why_not ? why + "; " + *why_not : why});
  }
  if (why_not) {
    ways.push_back({not_nccls, "refused", "NCCL does not support them, or not exactly, and " + *why_not});
    ways.push_back({small, facts.nccl, *why_not});
  } else {
    ways.push_back({not_nccls, "kernels in peer memory, at any size", "NCCL does not support them, or not exactly"});
    ways.push_back({small, "kernel in peer memory", "all GPUs can access each other's memory: faster than NCCL"});
    ways.push_back({blocks, "kernel in peer memory", "all GPUs can access each other's memory: faster than NCCL"});
  }
  ways.push_back({"all other collectives, types and sizes", facts.nccl, "kernels in peer memory are not faster"});
  return ways;
}

}  // namespace cox::detail
