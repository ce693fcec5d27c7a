#pragma once

#include <coxswain/servers/cuda/device/cuda_devices.hpp>

#include <optional>
#include <string>
#include <vector>

namespace cox {

/// How data of one kind is moved between GPUs, and why this route was chosen.
struct CudaRoute {
  std::string what;   ///< "transfers between cuda:0 and cuda:1"
  std::string route;  ///< "peer copy"
  std::string why;
};

namespace detail {

/// The facts from which the routes between GPUs are chosen.
struct CommunicationFacts {
  std::vector<std::string> devices;
  std::vector<std::vector<CudaPeerFacts>> peers;  ///< indexed by from, then to
  bool peer_memory = true;                        ///< the setting collectives.peer_memory
  bool reproducible = false;                      ///< the setting collectives.reproducible
  std::string nccl;                               ///< "NCCL 2.28.9 (file)"; empty: there is none
  std::string why_no_nccl;
};

/// Why small collectives, and reductions that NCCL does not do, cannot be done in peer memory; std::nullopt if they
/// can.
[[nodiscard]] std::optional<std::string> why_not_in_peer_memory(const CommunicationFacts& facts);

/// The routes between the devices of `facts`. Precondition: two devices or more.
[[nodiscard]] std::vector<CudaRoute> communication_routes(const CommunicationFacts& facts);

}  // namespace detail

}  // namespace cox
