#pragma once

#include <coxswain/runtime/error/server_error.hpp>

#include <exception>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

namespace cox {

/// A call of the CUDA driver or of NVRTC failed. Kind Unsupported: there is no driver, or it does not support the call;
/// Unhealthy: a fault has made all GPUs of the process unusable (gpu_fault.hpp); Validation: there is no such device;
/// Generic: any other error, and the operation has had no effect.
class CudaError : public ServerError {
 public:
  CudaError(Kind kind, int code, const std::string& what, std::source_location site = std::source_location::current(),
            std::exception_ptr cause = nullptr)
      : ServerError(kind, what, site, std::move(cause)), code_(code) {}

  /// An error of kind Unhealthy. `errors`: what errors() returns, not empty.
  [[nodiscard]] static CudaError unhealthy(int code, const std::string& what, std::vector<std::exception_ptr> errors,
                                           std::source_location site) {
    return {code, what, std::move(errors), site};
  }

  /// The native code (CUresult); 0 if there is none.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  CudaError(int code, const std::string& what, std::vector<std::exception_ptr> errors, std::source_location site)
      : ServerError(what, std::move(errors), site), code_(code) {}

  int code_;
};

}  // namespace cox
