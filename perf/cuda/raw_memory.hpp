#pragma once

#include <coxswain/perf/cuda/raw_driver.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>

#include <cstddef>

namespace cox::perf {

/// Page-locked memory of the driver, in the context that is current.
class RawPinned {
 public:
  explicit RawPinned(std::size_t bytes) { COX_CUDA_TRY(host_alloc(&data_, bytes, CU_MEMHOSTALLOC_PORTABLE)); }
  RawPinned(const RawPinned&) = delete;
  RawPinned& operator=(const RawPinned&) = delete;
  ~RawPinned() { COX_CUDA_CHECK(host_free(data_)); }

  [[nodiscard]] void* data() const noexcept { return data_; }

 private:
  void* data_ = nullptr;
};

/// Memory of a GPU from cuMemAlloc.
class RawDeviceMemory {
 public:
  RawDeviceMemory(const detail::CudaContext& context, std::size_t bytes) : context_(context) {
    const detail::CurrentContext current(context_);
    COX_CUDA_TRY(memory_alloc(&address_, bytes));
  }
  RawDeviceMemory(const RawDeviceMemory&) = delete;
  RawDeviceMemory& operator=(const RawDeviceMemory&) = delete;
  ~RawDeviceMemory() {
    const detail::CurrentContext current(context_);
    COX_CUDA_CHECK(memory_free(address_));
  }

  [[nodiscard]] CUdeviceptr address() const noexcept { return address_; }

 private:
  const detail::CudaContext& context_;
  CUdeviceptr address_ = 0;
};

}  // namespace cox::perf
