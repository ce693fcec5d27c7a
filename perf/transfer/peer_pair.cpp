#include <coxswain/perf/cuda/raw_driver.hpp>
#include <coxswain/perf/transfer/peer_pair.hpp>

#include <coxswain/runtime/tensor/element_type.hpp>

#include <source_location>
#include <vector>

namespace cox::perf {
namespace {

bool reaches(CUdevice from, CUdevice to) {
  int can = 0;
  COX_CUDA_TRY(device_can_access_peer(&can, from, to));
  return can != 0;
}

void enable(const detail::CudaContext& from, const detail::CudaContext& to) {
  const detail::CurrentContext current(from);
  const CUresult result = raw_driver().context_enable_peer(to.native(), 0);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    detail::throw_cuda_error(result, "context_enable_peer", std::source_location::current());
}

}  // namespace

bool gpus_reach_each_other(int first, int second) {
  CUdevice one = 0;
  CUdevice other = 0;
  COX_CUDA_TRY(device_get(&one, first));
  COX_CUDA_TRY(device_get(&other, second));
  return reaches(one, other) && reaches(other, one);
}

PeerPair::PeerPair(const OpenGpu& first, std::uint16_t second, std::size_t largest)
    : first_(first),
      second_(second),
      largest_(largest),
      first_memory_(first.raw().context(), largest),
      second_memory_(second_.raw().context(), largest),
      first_handle_(first.client().empty(largest)),
      second_handle_(second_.client().empty(largest)),
      first_address_(first.address_of(first_handle_)),
      second_address_(second_.address_of(second_handle_)) {
  const detail::CudaContext& here = first_.raw().context();
  const detail::CudaContext& there = second_.raw().context();
  if (reaches(here.device(), there.device())) enable(here, there);
  if (reaches(there.device(), here.device())) enable(there, here);
}

void PeerPair::copy_peer(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, const OpenGpu& on,
                         std::size_t times) const {
  const detail::CurrentContext current(on.raw().context());
  for (std::size_t i = 0; i < times; ++i)
    COX_CUDA_TRY(copy_to_peer(to + i * bytes, second_.raw().context().native(), from, first_.raw().context().native(),
                              bytes, on.raw().native()));
  on.raw().synchronize();
}

void PeerPair::copy_peer_in_stream(std::size_t bytes, std::size_t times) const {
  copy_peer(second_memory_.address(), first_memory_.address(), bytes, first_, times);
}

void PeerPair::copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) const {
  COX_RAW_TRY(copy_on_device(to, from, bytes, first_.raw().native()));
  first_.raw().synchronize();
}

Handle PeerPair::to_client(std::size_t bytes) const {
  const Handle source = first_handle_.offset_end(largest_ - bytes);
  Handle received = first_.client().to_client(source, second_.client(), ElementType::U8);
  if constexpr (CudaServer::communication_enabled) second_.client().sync_collective();
  second_.finish();
  return received;
}

std::vector<Handle> PeerPair::to_client_in_stream(std::size_t bytes, std::size_t times) const {
  const Handle source = first_handle_.offset_end(largest_ - bytes);
  std::vector<Handle> received;
  for (std::size_t i = 0; i < times; ++i)
    received.push_back(first_.client().to_client(source, second_.client(), ElementType::U8));
  second_.client().sync_collective();
  second_.finish();
  return received;
}

}  // namespace cox::perf
