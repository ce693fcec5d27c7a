#include <coxswain/servers/cuda/peer/cuda_nccl_resources.hpp>

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>

namespace cox::detail {

CudaNcclResources::CudaNcclResources(const CommunicationId& devices, const std::vector<int>& ordinals)
    : ranks_(ordinals.size()) {
  for (const int ordinal : ordinals) contexts_.push_back(CudaContext::open(ordinal));
  try {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const CurrentContext current(*contexts_[rank]);
      COX_CUDA_TRY(stream_create(&ranks_[rank].stream, CU_STREAM_NON_BLOCKING, 0));
      COX_CUDA_TRY(memory_alloc(&ranks_[rank].scratch, scratch_size));
    }
    if (settings().get<bool>("collectives.peer_memory")) peer_kernels_ = PeerKernels::make(devices, contexts_);
  } catch (...) {
    free();
    throw;
  }
}

CudaNcclResources::~CudaNcclResources() { free(); }

void CudaNcclResources::free() noexcept {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const CurrentContext current(*contexts_[rank]);
    if (ranks_[rank].stream != nullptr) COX_CUDA_CHECK(stream_destroy(ranks_[rank].stream));
    if (ranks_[rank].scratch != 0) COX_CUDA_CHECK(memory_free(ranks_[rank].scratch));
  }
}

void* CudaNcclResources::scratch(std::size_t rank) const noexcept {
  return reinterpret_cast<void*>(ranks_[rank].scratch);  // NOLINT(performance-no-int-to-ptr): an address of the device
}

void CudaNcclResources::synchronize(std::size_t rank) const {
  const CurrentContext current(*contexts_[rank]);
  COX_CUDA_TRY(stream_synchronize(ranks_[rank].stream));
}

}  // namespace cox::detail
