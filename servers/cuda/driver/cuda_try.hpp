#pragma once

#include <coxswain/servers/cuda/driver/driver.hpp>

#include <source_location>
#include <string>

namespace cox::detail {

/// "CUDA_ERROR_INVALID_VALUE (1): invalid argument".
[[nodiscard]] std::string describe(CUresult result);

/// Whether the error is sticky: all GPUs of the process are lost, whichever call returned it.
[[nodiscard]] bool is_sticky(CUresult result) noexcept;

/// Throws CudaError for the result of a call. A sticky error is first reported as the fault of the process
/// (gpu_fault.hpp).
[[noreturn]] void throw_cuda_error(CUresult result, const char* call, std::source_location site);

/// For calls whose failure cannot be thrown: reports a sticky error as the fault of the process, and logs any other
/// one. Returns whether the call has succeeded.
bool check_cuda(CUresult result, const char* call) noexcept;

}  // namespace cox::detail

/// Calls a function of the driver: COX_CUDA_TRY(stream_wait_event(stream, event, 0)). Throws CudaError with the native
/// code and name, file and line.
#define COX_CUDA_TRY(call)                                                                    \
  do {                                                                                        \
    if (const CUresult cox_result = ::cox::detail::driver().call; cox_result != CUDA_SUCCESS) \
      ::cox::detail::throw_cuda_error(cox_result, #call, std::source_location::current());    \
  } while (false)

/// Calls a function of the driver where nothing may be thrown: in destructors, and on threads that have no caller to
/// report to. True if the call has succeeded, or the process is ending and the function was not called.
#define COX_CUDA_CHECK(call) \
  (::cox::detail::process_is_ending() || ::cox::detail::check_cuda(::cox::detail::driver().call, #call))
