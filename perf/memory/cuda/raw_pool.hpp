#pragma once

#include <coxswain/perf/cuda/raw_driver.hpp>
#include <coxswain/perf/cuda/raw_stream.hpp>
#include <coxswain/runtime/handle/memory_usage.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cox::perf {

/// The driver's pool of the device, which orders by streams and keeps what is freed, as long as this lives. The context
/// is current.
class RawPool {
 public:
  using Allocation = CUdeviceptr;

  RawPool(const RawStream& gpu, std::uint32_t streams);
  RawPool(const RawPool&) = delete;
  RawPool& operator=(const RawPool&) = delete;
  /// Blocks; gives everything back to the device. All has been freed.
  ~RawPool();

  [[nodiscard]] Allocation allocate(std::size_t bytes, std::uint32_t stream = 0) {
    CUdeviceptr address = 0;
    COX_RAW_TRY(memory_alloc_async(&address, bytes, streams_[stream]->native()));
    return address;
  }
  void free(Allocation allocation, std::uint32_t stream = 0) {
    COX_RAW_TRY(memory_free_async(allocation, streams_[stream]->native()));
  }
  /// Blocks until all streams have come to the end.
  void finish() const {
    for (const auto& stream : streams_) stream->synchronize();
  }
  /// The peaks alone.
  [[nodiscard]] MemoryUsage usage() const;

 private:
  CUmemoryPool pool_ = nullptr;
  std::vector<std::unique_ptr<RawStream>> streams_;
};

}  // namespace cox::perf
