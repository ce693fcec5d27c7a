#include <coxswain/servers/cuda/driver/cuda_try.hpp>

#include <coxswain/runtime/error/log.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>

#include <algorithm>
#include <array>

namespace cox::detail {

std::string describe(CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (const Driver* const found = find_driver().driver) {
    found->error_name(result, &name);
    found->error_text(result, &text);
  }
  return std::string(name != nullptr ? name : "CUDA error") + " (" + std::to_string(static_cast<int>(result)) + ")" +
         (text != nullptr ? std::string(": ") + text : std::string());
}

bool is_sticky(CUresult result) noexcept {
  constexpr std::array sticky{
      CUDA_ERROR_ILLEGAL_ADDRESS,
      CUDA_ERROR_LAUNCH_TIMEOUT,
      CUDA_ERROR_ASSERT,
      CUDA_ERROR_HARDWARE_STACK_ERROR,
      CUDA_ERROR_ILLEGAL_INSTRUCTION,
      CUDA_ERROR_MISALIGNED_ADDRESS,
      CUDA_ERROR_INVALID_ADDRESS_SPACE,
      CUDA_ERROR_INVALID_PC,
      CUDA_ERROR_LAUNCH_FAILED,
      CUDA_ERROR_ECC_UNCORRECTABLE,
      CUDA_ERROR_NVLINK_UNCORRECTABLE,
      CUDA_ERROR_CONTEXT_IS_DESTROYED,
      CUDA_ERROR_EXTERNAL_DEVICE,
      CUDA_ERROR_MPS_CLIENT_TERMINATED,
      CUDA_ERROR_CONTAINED,
      CUDA_ERROR_DEVICE_UNAVAILABLE,
      CUDA_ERROR_TENSOR_MEMORY_LEAK,
  };
  return std::ranges::find(sticky, result) != sticky.end();
}

void throw_cuda_error(CUresult result, const char* call, std::source_location site) {
  const std::string what = std::string(call) + ": " + describe(result);
  if (is_sticky(result)) {
    report_gpu_fault(result, call);
    throw_gpu_fault(site);
  }
  throw CudaError(CudaError::Kind::Generic, static_cast<int>(result), what, site);
}

bool check_cuda(CUresult result, const char* call) noexcept {
  if (result == CUDA_SUCCESS) [[likely]]
    return true;
  if (is_sticky(result)) {
    report_gpu_fault(result, call);
  } else {
    try {
      log::write(LogSubsystem::Cuda, LogLevel::Warn, [&] { return std::string(call) + ": " + describe(result); });
    } catch (...) {  // no memory for the message, and no other way to report it
    }
  }
  return false;
}

}  // namespace cox::detail
