#include <coxswain/perf/cuda/raw_nccl.hpp>

#include <coxswain/collectives/nccl/nccl_try.hpp>

#include <numeric>

namespace cox::perf {
namespace {

void* pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): an address of the device
}

}  // namespace

RawNccl::RawNccl(std::size_t ranks, std::size_t largest) {
  std::vector<int> ordinals(ranks);
  std::iota(ordinals.begin(), ordinals.end(), 0);
  for (const int ordinal : ordinals) ranks_.push_back(std::make_unique<Rank>(ordinal, largest));
  std::vector<detail::NcclComm> comms(ranks);
  COX_NCCL_TRY(nullptr, init_all(comms.data(), static_cast<int>(ranks), ordinals.data()));
  for (std::size_t rank = 0; rank < ranks; ++rank) ranks_[rank]->comm = comms[rank];
}

RawNccl::RawNccl(const RawNcclPlace& place, const detail::NcclUniqueId& id, std::size_t largest) {
  ranks_.push_back(std::make_unique<Rank>(place.ordinal, largest));
  Rank& own = *ranks_.front();
  const detail::CurrentContext current(own.stream.context());
  detail::NcclConfig config{.version = static_cast<unsigned>(detail::nccl().version), .blocking = 1};
  COX_NCCL_TRY(nullptr, init_rank(&own.comm, place.ranks, id, place.rank, &config));
}

RawNccl::~RawNccl() {
  for (const auto& rank : ranks_) COX_NCCL_CHECK(nullptr, destroy(rank->comm));
}

void RawNccl::all_reduce(std::size_t rank, std::size_t bytes, bool in_place) const {
  const Rank& its = *ranks_[rank];
  void* const destination = pointer(its.destination.address());
  COX_NCCL_TRY(its.comm,
               all_reduce(in_place ? destination : pointer(its.source.address()), destination, bytes / 4,
                          detail::NcclType::Float32, detail::NcclReduction::Sum, its.comm, its.stream.native()));
}

void RawNccl::all_gather(std::size_t rank, std::size_t bytes) const {
  const Rank& its = *ranks_[rank];
  COX_NCCL_TRY(its.comm, all_gather(pointer(its.source.address()), pointer(its.destination.address()), bytes,
                                    detail::NcclType::Uint8, its.comm, its.stream.native()));
}

void RawNccl::reduce_scatter(std::size_t rank, std::size_t bytes) const {
  const Rank& its = *ranks_[rank];
  COX_NCCL_TRY(its.comm,
               reduce_scatter(pointer(its.source.address()), pointer(its.destination.address()), bytes / 4,
                              detail::NcclType::Float32, detail::NcclReduction::Sum, its.comm, its.stream.native()));
}

void RawNccl::broadcast(std::size_t rank, std::size_t bytes) const {
  const Rank& its = *ranks_[rank];
  COX_NCCL_TRY(its.comm, broadcast(pointer(its.source.address()), pointer(its.destination.address()), bytes,
                                   detail::NcclType::Uint8, 0, its.comm, its.stream.native()));
}

void RawNccl::reduce(std::size_t rank, std::size_t bytes) const {
  const Rank& its = *ranks_[rank];
  COX_NCCL_TRY(its.comm,
               reduce(pointer(its.source.address()), pointer(its.destination.address()), bytes / sizeof(float),
                      detail::NcclType::Float32, detail::NcclReduction::Sum, 0, its.comm, its.stream.native()));
}

void RawNccl::fill(std::size_t rank, bool in_place, std::span<const float> data) const {
  const Rank& its = *ranks_[rank];
  const CUdeviceptr to = in_place ? its.destination.address() : its.source.address();
  COX_CUDA_TRY(copy_to_device(to, data.data(), data.size_bytes(), its.stream.native()));
  its.stream.synchronize();
}

void RawNccl::get_result(std::size_t rank, std::span<float> data) const {
  const Rank& its = *ranks_[rank];
  COX_CUDA_TRY(copy_to_host(data.data(), its.destination.address(), data.size_bytes(), its.stream.native()));
  its.stream.synchronize();
}

void RawNccl::send(std::size_t rank, std::size_t bytes, int peer) const {
  const Rank& its = *ranks_[rank];
  COX_NCCL_TRY(its.comm, send(pointer(its.source.address()), bytes, detail::NcclType::Uint8, peer, its.comm,
                              its.stream.native()));
}

void RawNccl::receive(std::size_t rank, std::size_t bytes, int peer) const {
  const Rank& its = *ranks_[rank];
  COX_NCCL_TRY(its.comm, receive(pointer(its.destination.address()), bytes, detail::NcclType::Uint8, peer, its.comm,
                                 its.stream.native()));
}

}  // namespace cox::perf
