#pragma once

#include <coxswain/servers/cuda/server/cuda_server.hpp>
#include <coxswain/tools/cox/stress/kept_kernels.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace cox::stress {

template <>
struct KeptKernels<CudaClient> {
  static constexpr std::chrono::microseconds opening{900'000};
  static constexpr std::chrono::microseconds updating{150'000};

  /// Loads the kernels, so that a fault comes when it is launched. Blocks.
  static void prepare(const CudaClient& client);
  static void write(const CudaClient& client, const Handle& memory, Access access, std::size_t count,
                    std::uint64_t epoch, std::uint64_t place);
  /// Launches a kernel that fails in that way, in a stream of its own.
  static void fail(CudaClient client, KeptEnd end);
};

}  // namespace cox::stress
