#pragma once

// Memory and streams that a test owns, as another library would, without the library's knowledge.

#include <coxswain/tests/servers/contract/compute_backend.hpp>

#if COX_CUDA_TESTS
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#endif

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace cox::test {

/// `bytes` bytes of memory of a device.
template <class Backend>
class ForeignMemory;

template <>
class ForeignMemory<HostBackend> {
 public:
  ForeignMemory(DeviceId, std::size_t bytes) : memory_(std::aligned_alloc(64, (bytes + 63) / 64 * 64)) {
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  [[nodiscard]] void* data() const noexcept { return memory_.get(); }

 private:
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
};

#if COX_CUDA_TESTS
template <>
class ForeignMemory<CudaBackend> {
 public:
  ForeignMemory(DeviceId device, std::size_t bytes) : context_(detail::CudaContext::open(device.index)) {
    const detail::CurrentContext current(*context_);
    COX_CUDA_TRY(memory_alloc(memory_.out(), bytes));
  }
  ForeignMemory(const ForeignMemory&) = delete;
  ForeignMemory& operator=(const ForeignMemory&) = delete;
  ~ForeignMemory() { reset(); }
  void reset() {
    const detail::CurrentContext current(*context_);
    memory_.reset();
  }
  [[nodiscard]] void* data() const noexcept { return reinterpret_cast<void*>(memory_.get()); }
  [[nodiscard]] CUdeviceptr address() const noexcept { return memory_.get(); }

 private:
  std::shared_ptr<detail::CudaContext> context_;
  detail::DriverMemory memory_;
};

/// A stream of the driver, and page-locked words that its work reads and writes.
class ForeignStream {
 public:
  static constexpr std::size_t words = 4096;

  explicit ForeignStream(DeviceId device) : context_(detail::CudaContext::open(device.index)) {
    const detail::CurrentContext current(*context_);
    COX_CUDA_TRY(stream_create(stream_.out(), CU_STREAM_NON_BLOCKING, 0));
    COX_CUDA_TRY(host_alloc(host_.out(), words * sizeof(std::uint32_t), CU_MEMHOSTALLOC_DEVICEMAP));
    for (std::size_t i = 0; i < words; ++i) word(i) = 0;
  }
  ForeignStream(const ForeignStream&) = delete;
  ForeignStream& operator=(const ForeignStream&) = delete;
  ~ForeignStream() {
    open();
    const detail::CurrentContext current(*context_);
    sync();
    stream_.reset();
    host_.reset();
  }

  [[nodiscard]] CUstream native() const noexcept { return stream_.get(); }
  [[nodiscard]] const detail::CudaContext& context() const noexcept { return *context_; }
  [[nodiscard]] std::uint32_t& word(std::size_t i) const noexcept {
    return static_cast<std::uint32_t*>(host_.get())[i];
  }
  /// Later work of the stream waits for open().
  void hold() {
    std::atomic_ref(word(0)).store(0);
    const detail::CurrentContext current(*context_);
    COX_CUDA_TRY(
        stream_wait_value(stream_.get(), reinterpret_cast<CUdeviceptr>(host_.get()), 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void open() { std::atomic_ref(word(0)).store(1); }
  /// Queues a copy of word i to device memory, or of a word of device memory to word i.
  void copy_to_device(CUdeviceptr to, std::size_t i) {
    const detail::CurrentContext current(*context_);
    COX_CUDA_TRY(copy_to_device(to, &word(i), sizeof(std::uint32_t), stream_.get()));
  }
  void copy_to_host(std::size_t i, CUdeviceptr from) {
    const detail::CurrentContext current(*context_);
    COX_CUDA_TRY(copy_to_host(&word(i), from, sizeof(std::uint32_t), stream_.get()));
  }
  void sync() {
    const detail::CurrentContext current(*context_);
    COX_CUDA_TRY(stream_synchronize(stream_.get()));
  }

 private:
  std::shared_ptr<detail::CudaContext> context_;
  detail::DriverStream stream_;
  detail::DriverHostMemory host_;
};
#endif

}  // namespace cox::test
