#pragma once

#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/perf/cuda/raw_memory.hpp>
#include <coxswain/perf/cuda/raw_stream.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace cox::perf {

/// A rank of a communicator of several processes, and its GPU.
struct RawNcclPlace {
  int ordinal = 0;
  int rank = 0;
  int ranks = 1;
};

/// NCCL as a program without Coxswain has it: a blocking communicator, and for each GPU of this process a stream and
/// two buffers. A rank is given by its number in this process, and used by one thread.
class RawNccl {
 public:
  /// A communicator over the first GPUs. `largest`: bytes of each buffer. Throws CollectiveError, CudaError.
  RawNccl(std::size_t ranks, std::size_t largest);
  /// A communicator over a GPU of each of several processes. `id`: from ncclGetUniqueId in one of them. Blocks until
  /// all processes have called it, without a limit. Throws CollectiveError, CudaError.
  RawNccl(const RawNcclPlace& place, const detail::NcclUniqueId& id, std::size_t largest);
  RawNccl(const RawNccl&) = delete;
  RawNccl& operator=(const RawNccl&) = delete;
  ~RawNccl();

  /// Makes the rank's device that of the calling thread.
  void activate(std::size_t rank) const { ranks_[rank]->stream.activate(); }
  /// ncclAllReduce of that many bytes of f32.
  void all_reduce(std::size_t rank, std::size_t bytes, bool in_place) const;
  /// ncclAllGather of that many bytes from each rank, and ncclReduceScatter of that many, as f32, for each.
  void all_gather(std::size_t rank, std::size_t bytes) const;
  void reduce_scatter(std::size_t rank, std::size_t bytes) const;
  /// ncclBroadcast of that many bytes from the first rank.
  void broadcast(std::size_t rank, std::size_t bytes) const;
  /// ncclReduce of that many bytes of f32 to the first rank.
  void reduce(std::size_t rank, std::size_t bytes) const;
  /// Fills what the rank's next all_reduce reads. Blocks.
  void fill(std::size_t rank, bool in_place, std::span<const float> data) const;
  /// What its last all_reduce gave. Blocks.
  void get_result(std::size_t rank, std::span<float> data) const;
  void send(std::size_t rank, std::size_t bytes, int peer) const;
  void receive(std::size_t rank, std::size_t bytes, int peer) const;
  void synchronize(std::size_t rank) const { ranks_[rank]->stream.synchronize(); }

 private:
  struct Rank {
    Rank(int ordinal, std::size_t bytes)
        : stream(ordinal), source(stream.context(), bytes), destination(stream.context(), bytes) {}
    RawStream stream;
    RawDeviceMemory source;
    RawDeviceMemory destination;
    detail::NcclComm comm = nullptr;
  };
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace cox::perf
