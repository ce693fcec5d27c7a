#pragma once

#include <coxswain/runtime/communication/communication_id.hpp>

#include <cstddef>
#include <vector>

namespace cox::detail {

/// What the number of CTAs depends on.
struct NcclCtasFacts {
  std::size_t ranks = 0;
  int compute_capability = 0;  ///< 90 of 9.0
  bool nvlink = false;         ///< connects the ranks
};

/// How many CTAs (thread blocks) NCCL's kernels have; 0: as many as NCCL chooses. The only place with these numbers.
[[nodiscard]] int measured_nccl_ctas(const NcclCtasFacts& facts) noexcept;

/// For a communicator: the setting collectives.nccl_ctas; if that is 0, what was measured for such devices, but 0 if a
/// variable of NCCL's limits the CTAs or channels. `ordinals`: of the devices of this process, by rank. NVLink to GPUs
/// of other processes on the host is assumed if a GPU that this process can see is connected by it; of several
/// processes, that of rank 0 decides (NcclCreationPlan). Any thread. No other thread may change the environment
/// meanwhile. Throws CudaError, ConfigError.
[[nodiscard]] int nccl_ctas(const CommunicationId& devices, const std::vector<int>& ordinals);

}  // namespace cox::detail
