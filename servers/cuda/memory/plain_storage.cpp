#include <coxswain/servers/cuda/memory/plain_storage.hpp>

#include <coxswain/servers/cuda/driver/cuda_try.hpp>

namespace cox::detail {

MemoryAddress PlainStorage::allocate(std::size_t bytes) noexcept {
  const CurrentContext current(*context_);
  CUdeviceptr found = 0;
  const CUresult result = driver().memory_alloc(&found, bytes);
  if (result == CUDA_SUCCESS) return found;
  if (result != CUDA_ERROR_OUT_OF_MEMORY) check_cuda(result, "memory_alloc");
  return 0;
}

void PlainStorage::free(MemoryAddress address, std::size_t) noexcept {
  const CurrentContext current(*context_);
  COX_CUDA_CHECK(memory_free(address));
}

}  // namespace cox::detail
