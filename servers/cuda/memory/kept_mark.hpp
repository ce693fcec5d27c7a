#pragma once

#include <coxswain/runtime/kept/kept_record.hpp>
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>

#include <cstdint>

namespace cox::detail {

inline constexpr const char* kept_mark_name = "cox_kept_mark";

/// The kernel that changes the record of a kept set: one thread. Its arguments are the address of the record, then
/// those of KeptMarkArguments, in order.
[[nodiscard]] const CudaKernel& kept_mark_kernel();

struct KeptMarkArguments {
  explicit KeptMarkArguments(const KeptMarkChange& change) noexcept;

  std::uint32_t kind;
  std::uint64_t generation;
  std::uint64_t epoch;
  std::uint32_t two_copies;
  std::int32_t copy;
};

}  // namespace cox::detail
