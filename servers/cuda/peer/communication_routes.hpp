#pragma once

#include <coxswain/servers/cuda/device/cuda_devices.hpp>

#include <optional>
#include <string>
#include <vector>

namespace cox {

/// How something goes between GPUs, and why that way.
struct CudaRoute {
  std::string what;   ///< "transfers between cuda:0 and cuda:1"
  std::string route;  ///< "peer copy"
  std::string why;
};

namespace detail {

/// What the ways between GPUs are chosen from.
struct CommunicationFacts {
  std::vector<std::string> devices;
  std::vector<std::vector<CudaPeerFacts>> peers;  ///< from, to
  bool peer_memory = true;                        ///< the setting collectives.peer_memory
  std::string nccl;                               ///< "NCCL 2.28.9 (file)"; empty: there is none
  std::string why_no_nccl;
};

/// Why small collectives, and reductions that NCCL does not do, cannot go through peer memory; nothing: they do.
[[nodiscard]] std::optional<std::string> why_not_in_peer_memory(const CommunicationFacts& facts);

/// For two devices or more.
[[nodiscard]] std::vector<CudaRoute> communication_routes(const CommunicationFacts& facts);

}  // namespace detail

}  // namespace cox
