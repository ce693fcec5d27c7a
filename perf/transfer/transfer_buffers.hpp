#pragma once

#include <coxswain/perf/cuda/open_gpu.hpp>
#include <coxswain/perf/cuda/raw_memory.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/handle/handle.hpp>

#include <cstddef>
#include <memory>

namespace cox::perf {

/// The memory that transfers go between, made when it is first asked for, all of it touched. Smaller transfers use its
/// beginning. The GPU's context is current.
class TransferBuffers {
 public:
  TransferBuffers(const OpenGpu& gpu, std::size_t largest) : gpu_(gpu), largest_(largest) {}

  [[nodiscard]] const OpenGpu& gpu() const noexcept { return gpu_; }
  /// The first `bytes` of the device's memory; raw copies use the same.
  [[nodiscard]] Handle device(std::size_t bytes);
  [[nodiscard]] CUdeviceptr address();
  /// Bytes in pageable memory; they may be handed out again and again.
  [[nodiscard]] Bytes pageable(std::size_t bytes) { return pageable().slice(0, bytes); }
  /// The same in page-locked memory of the client's. Throws std::runtime_error if it has not so much.
  [[nodiscard]] Bytes staged(std::size_t bytes);
  /// Pageable memory for raw downloads.
  [[nodiscard]] void* landing();
  /// Page-locked memory of the driver.
  [[nodiscard]] void* pinned();

 private:
  [[nodiscard]] const Bytes& pageable();

  const OpenGpu& gpu_;
  const std::size_t largest_;
  Bytes pageable_;
  Bytes staged_;
  Bytes landing_;
  Handle device_;
  CUdeviceptr address_ = 0;
  std::unique_ptr<RawPinned> pinned_;
};

}  // namespace cox::perf
