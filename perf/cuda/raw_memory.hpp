#pragma once

#include <coxswain/perf/cuda/raw_driver.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>

#include <cstddef>

namespace cox::perf {

/// Page-locked memory of the driver, in the context that is current.
class RawPinned {
 public:
  explicit RawPinned(std::size_t bytes) { COX_CUDA_TRY(host_alloc(data_.out(), bytes, CU_MEMHOSTALLOC_PORTABLE)); }

  [[nodiscard]] void* data() const noexcept { return data_.get(); }

 private:
  detail::DriverHostMemory data_;
};

/// Memory of a GPU from cuMemAlloc.
class RawDeviceMemory {
 public:
  RawDeviceMemory(const detail::CudaContext& context, std::size_t bytes) : context_(context) {
    const detail::CurrentContext current(context_);
    COX_CUDA_TRY(memory_alloc(address_.out(), bytes));
  }
  RawDeviceMemory(const RawDeviceMemory&) = delete;
  RawDeviceMemory& operator=(const RawDeviceMemory&) = delete;
  ~RawDeviceMemory() {
    const detail::CurrentContext current(context_);
    address_.reset();
  }

  [[nodiscard]] CUdeviceptr address() const noexcept { return address_.get(); }

 private:
  const detail::CudaContext& context_;
  detail::DriverMemory address_;
};

}  // namespace cox::perf
