#pragma once

#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

namespace cox::detail {

/// The words of a parameter of `bytes` bytes, where each parameter begins in a new word of 64 bits.
[[nodiscard]] constexpr std::size_t parameter_words(std::size_t bytes) noexcept {
  return (bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
}

/// A kernel in the context of one device, ready to be launched there, or the reason why it is not. Immutable.
struct LoadedKernel {
  CUfunction function = nullptr;                   ///< null if there is a failure
  std::size_t static_shared_memory = 0;            ///< bytes that the kernel declares
  std::size_t local_memory = 0;                    ///< bytes of each thread
  std::uint32_t max_threads_per_block = 0;         ///< with the number of registers that it uses
  std::uint32_t registers = 0;                     ///< of each thread
  std::vector<std::size_t> parameter_sizes;        ///< bytes, in order
  std::vector<std::uint32_t> parameter_begins{0};  ///< index of the first word of each, then the number of all words
  bool has_clusters = false;                 ///< the kernel declares a cluster size, or requires one at the launch
  std::exception_ptr failure;                ///< LaunchError, CudaError, or what a resolver threw
  std::weak_ptr<const CudaContext> context;  ///< expires when the device is shut down: `function` is invalid then
};

}  // namespace cox::detail
