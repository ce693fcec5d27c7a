#pragma once

#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/stream/launch_batch.hpp>

#include <cstdint>
#include <vector>

namespace cox::test {

/// Gives one kernel to the driver, without the library's streams.
inline void launch_on(CUstream stream, const detail::KernelLaunch& kernel) {
  std::vector<void*> values;
  for (const std::uint32_t begin : kernel.parameter_begins)
    values.push_back(const_cast<std::uint64_t*>(&kernel.words[begin]));
  const CUlaunchConfig config = detail::launch_config(kernel.grid, kernel.block, kernel.shared_memory, stream);
  COX_CUDA_TRY(launch(&config, kernel.function, values.data(), nullptr));
}

}  // namespace cox::test
