#pragma once

#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>

#include <memory>

namespace cox::perf {

/// A stream of the driver, as a program without Coxswain has one: non-blocking, in the device's primary context. Where
/// calls need a current context, activate() first; it is that of one thread.
class RawStream {
 public:
  explicit RawStream(int ordinal) : context_(detail::CudaContext::open(ordinal)) {
    const detail::CurrentContext current(*context_);
    COX_CUDA_TRY(stream_create(stream_.out(), CU_STREAM_NON_BLOCKING, 0));
  }

  [[nodiscard]] CUstream native() const noexcept { return stream_.get(); }
  [[nodiscard]] const detail::CudaContext& context() const noexcept { return *context_; }
  [[nodiscard]] const std::shared_ptr<detail::CudaContext>& shared_context() const noexcept { return context_; }
  /// Makes the context current on the calling thread.
  void activate() const { context_->make_current(); }
  /// Blocks until the stream's work is done.
  void synchronize() const { COX_CUDA_TRY(stream_synchronize(native())); }

 private:
  std::shared_ptr<detail::CudaContext> context_;
  detail::DriverStream stream_;
};

}  // namespace cox::perf
