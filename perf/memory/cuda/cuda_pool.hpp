#pragma once

#include <coxswain/perf/cuda/raw_stream.hpp>
#include <coxswain/perf/memory/memory_cases.hpp>
#include <coxswain/runtime/memory/granularity.hpp>
#include <coxswain/servers/cuda/memory/cuda_storage.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <cstddef>
#include <cstdint>

namespace cox::perf {

/// cox::MemoryPool over memory of a GPU, set up as the CUDA server does it, on the calling thread.
class CudaPool : public BasicPoolUnderTest<detail::CudaStorage> {
 public:
  /// With a device that is always `lag` frees behind the program.
  CudaPool(const RawStream& gpu, std::uint64_t lag) : CudaPool(gpu, lag, memory_of(gpu)) {}

 private:
  CudaPool(const RawStream& gpu, std::uint64_t lag, std::size_t capacity)
      : BasicPoolUnderTest(lag,
                           {.alignment = CudaServer::memory_alignment,
                            .capacity = capacity,
                            .address_space = Granularity{detail::CudaStorage::granule}.round_up(8 * capacity)},
                           gpu.shared_context()) {}

  static std::size_t memory_of(const RawStream& gpu) {
    std::size_t bytes = 0;
    COX_CUDA_TRY(device_total_memory(&bytes, gpu.context().device()));
    return bytes;
  }
};

}  // namespace cox::perf
