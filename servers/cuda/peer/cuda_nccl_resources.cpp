#include <coxswain/servers/cuda/peer/cuda_nccl_resources.hpp>

#include <coxswain/runtime/config/process_settings.hpp>

#include <source_location>

namespace cox::detail {
namespace {

std::vector<std::shared_ptr<CudaContext>> contexts_of(const std::vector<int>& ordinals) {
  std::vector<std::shared_ptr<CudaContext>> contexts;
  for (const int ordinal : ordinals) contexts.push_back(CudaContext::open(ordinal));
  return contexts;
}

}  // namespace

CudaNcclResources::CudaNcclResources(const CommunicationId& devices, const std::vector<int>& ordinals)
    : CudaNcclResources(contexts_of(ordinals)) {  // delegates, so that the destructor also runs if the rest throws
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const CurrentContext current(*contexts_[rank]);
    COX_CUDA_TRY(stream_create(ranks_[rank].stream.out(), CU_STREAM_NON_BLOCKING, 0));
    COX_CUDA_TRY(memory_alloc(ranks_[rank].scratch.out(), scratch_size));
  }
  // Kernels in peer memory need the memory of all ranks in this process.
  if (!devices.spans_processes() && settings().get<bool>("collectives.peer_memory"))
    peer_kernels_ = PeerKernels::make(devices, contexts_);
}

CudaNcclResources::~CudaNcclResources() {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const CurrentContext current(*contexts_[rank]);
    ranks_[rank] = {};
  }
}

void* CudaNcclResources::scratch(std::size_t rank) const noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the device
  return reinterpret_cast<void*>(ranks_[rank].scratch.get());
}

bool CudaNcclResources::is_idle(std::size_t rank) const {
  const CurrentContext current(*contexts_[rank]);
  const CUresult result = driver().stream_query(stream(rank));
  if (result == CUDA_ERROR_NOT_READY) return false;
  if (result != CUDA_SUCCESS) throw_cuda_error(result, "stream_query", std::source_location::current());
  return true;
}

void CudaNcclResources::synchronize(std::size_t rank) const {
  const CurrentContext current(*contexts_[rank]);
  COX_CUDA_TRY(stream_synchronize(stream(rank)));
}

}  // namespace cox::detail
