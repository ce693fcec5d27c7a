#pragma once

#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>

namespace cox::perf {

/// Functions of the CUDA driver that the library does without and that we measure it beside.
struct RawDriver {
#define COX_CUDA_ENTRY(member, function, version) PFN_##function##_v##version member = nullptr;
#include <coxswain/perf/cuda/raw_driver_entries.inc>
#undef COX_CUDA_ENTRY
};

/// Found at the first call. Throws CudaError without a driver, or if it lacks one of them.
[[nodiscard]] const RawDriver& raw_driver();

}  // namespace cox::perf

/// As COX_CUDA_TRY and COX_CUDA_CHECK.
#define COX_RAW_TRY(call)                                                                       \
  do {                                                                                          \
    if (const CUresult cox_result = ::cox::perf::raw_driver().call; cox_result != CUDA_SUCCESS) \
      ::cox::detail::throw_cuda_error(cox_result, #call, std::source_location::current());      \
  } while (false)
#define COX_RAW_CHECK(call) ::cox::detail::check_cuda(::cox::perf::raw_driver().call, #call)
