#pragma once

#include <coxswain/perf/collective/thread_team.hpp>
#include <coxswain/perf/cuda/raw_memory.hpp>
#include <coxswain/perf/cuda/raw_stream.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels.hpp>
#include <coxswain/servers/cuda/stream/launch_batch.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cox::perf {

/// Times of one operation, in us.
struct BareTimes {
  double in_stream = 0;      ///< many that are launched without waiting, by graphs of 16
  double one_at_a_time = 0;  ///< launch and stream synchronization, of each
};

/// PeerKernels without the library around them: for each rank a thread that launches its kernels itself.
class BareRanks {
 public:
  /// Ranks on the first GPUs. `largest`: bytes of a rank's source and of its destination. Throws CudaError,
  /// std::bad_alloc.
  BareRanks(std::size_t ranks, std::size_t largest);
  BareRanks(const BareRanks&) = delete;
  BareRanks& operator=(const BareRanks&) = delete;
  ~BareRanks();

  /// The operation on the buffers of all ranks, or the group of operations on one part of the buffers behind the other,
  /// by the kernels within `limits`: `count` times in a stream, and a tenth of it, at least 50, one at a time. Blocks.
  /// Throws std::invalid_argument if the limits leave the operation to NCCL. Precondition: a group consists of
  /// all_reduces.
  [[nodiscard]] BareTimes time(const CollectiveRequests& requests, const detail::PeerKernelLimits& limits,
                               std::size_t count);

 private:
  struct Rank;
  struct Kernels;

  [[nodiscard]] Kernels& add_kernels(const detail::PeerKernelLimits& limits);
  [[nodiscard]] Kernels& kernels_for(const CollectiveRequest& request, const detail::PeerKernelLimits& limits);
  void repeat(Kernels& kernels, const CollectiveRequests& requests, std::size_t count, bool wait);

  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::unique_ptr<Kernels>> kernels_;  // one for all operations with the same limits
  ThreadTeam team_;
};

}  // namespace cox::perf
