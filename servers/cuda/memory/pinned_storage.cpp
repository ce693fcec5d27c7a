#include <coxswain/servers/cuda/memory/pinned_storage.hpp>

#include <coxswain/servers/cuda/driver/cuda_try.hpp>

namespace cox::detail {

MemoryAddress PinnedStorage::allocate(std::size_t bytes) noexcept {
  const CurrentContext current(*context_);
  void* found = nullptr;
  const CUresult result = driver().host_alloc(&found, bytes, CU_MEMHOSTALLOC_PORTABLE);
  if (result != CUDA_SUCCESS) {
    if (result != CUDA_ERROR_OUT_OF_MEMORY) check_cuda(result, "host_alloc");
    return 0;
  }
  return static_cast<MemoryAddress>(reinterpret_cast<std::uintptr_t>(found));
}

void PinnedStorage::free(MemoryAddress address, std::size_t) noexcept {
  const CurrentContext current(*context_);
  COX_CUDA_CHECK(host_free(reinterpret_cast<void*>(static_cast<std::uintptr_t>(address))));
}

}  // namespace cox::detail
