#pragma once

#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>

#include <algorithm>
#include <cstdint>

namespace cox::detail {

inline constexpr const char* kept_sum_begin_name = "cox_kept_sum_begin";
inline constexpr const char* kept_sum_name = "cox_kept_sum";

/// Begins a KeptChecksum with the sum 0: one thread. Arguments: the address of the checksum (aligned to 8 bytes), its
/// name and its epoch, 64 bits each.
[[nodiscard]] const CudaKernel& kept_sum_begin_kernel();
/// Adds checksum_of() the memory to the sum of a KeptChecksum. Each thread reads 16 bytes at a time; the sum is the
/// same for any number of blocks. Arguments: the address of the memory (aligned to 16 bytes, mapped up to the next
/// multiple of 16 bytes), its bytes, and the address of the checksum, 64 bits each.
[[nodiscard]] const CudaKernel& kept_sum_kernel();

inline constexpr unsigned kept_sum_threads = 256;
/// Blocks for memory of that many bytes: at most 2,048, about two waves of an H200, as the reads of 2,048 threads of
/// each multiprocessor are needed for the bandwidth of the memory.
[[nodiscard]] constexpr unsigned kept_sum_blocks(std::uint64_t bytes) noexcept {
  return static_cast<unsigned>(std::clamp<std::uint64_t>(bytes / 16 / kept_sum_threads, 1, 2048));
}

}  // namespace cox::detail
