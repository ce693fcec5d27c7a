#pragma once

#include <coxswain/servers/cuda/driver/driver.hpp>

#include <source_location>
#include <string>

namespace cox::detail {

/// "CUDA_ERROR_INVALID_VALUE (1): invalid argument".
[[nodiscard]] std::string describe(CUresult result);

/// Whether the error is the kind that stays: the process's GPUs are gone, whatever call showed it.
[[nodiscard]] bool is_sticky(CUresult result) noexcept;

/// Throws CudaError for what a call returned. An error that stays is reported as the process's fault first
/// (gpu_fault.hpp).
[[noreturn]] void throw_cuda_error(CUresult result, const char* call, std::source_location site);

/// For calls whose failure cannot be thrown: logs it, and reports an error that stays. Returns whether all is well.
bool check_cuda(CUresult result, const char* call) noexcept;

}  // namespace cox::detail

/// Calls a function of the driver: COX_CUDA_TRY(stream_wait_event(stream, event, 0)). Throws CudaError with the native
/// code and name, file and line.
#define COX_CUDA_TRY(call)                                                                    \
  do {                                                                                        \
    if (const CUresult cox_result = ::cox::detail::driver().call; cox_result != CUDA_SUCCESS) \
      ::cox::detail::throw_cuda_error(cox_result, #call, std::source_location::current());    \
  } while (false)

/// The same where nothing may be thrown: in destructors, and on threads where nobody could be told. True: it worked, or
/// the process is ending and it was not called.
#define COX_CUDA_CHECK(call) \
  (::cox::detail::process_is_ending() || ::cox::detail::check_cuda(::cox::detail::driver().call, #call))
