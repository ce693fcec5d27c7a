#pragma once

#include <coxswain/runtime/server_error.hpp>

#include <exception>
#include <source_location>
#include <string>

namespace cox {

/// The CUDA driver, or NVRTC, refused something. Kind Unsupported: there is no driver, or it cannot do this; Unhealthy:
/// a fault has taken all GPUs of the process (gpu_fault.hpp); Generic: anything else, which is undone.
class CudaError : public ServerError {
 public:
  CudaError(Kind kind, int code, const std::string& what,
            std::source_location site = std::source_location::current(), std::exception_ptr cause = nullptr)
      : ServerError(kind, what, site, std::move(cause)), code_(code) {}

  /// The native code (CUresult); 0 if there is none.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

}  // namespace cox
