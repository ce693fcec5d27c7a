#pragma once

#include <coxswain/servers/cuda/driver/driver.hpp>

#include <memory>

namespace cox::detail {

/// The primary context of a device, which the CUDA runtime uses too. It is retained as long as this object exists. Any
/// thread.
class CudaContext {
 public:
  /// Returns the open context of the device, or opens it. Blocks while it is opened. Throws CudaError.
  [[nodiscard]] static std::shared_ptr<CudaContext> open(int ordinal);
  /// The open context of the device; null if it is not open.
  [[nodiscard]] static std::shared_ptr<CudaContext> find(int ordinal);

  explicit CudaContext(int ordinal);
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  ~CudaContext();

  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] CUdevice device() const noexcept { return device_; }
  /// Throws CudaError.
  [[nodiscard]] int attribute(CUdevice_attribute which) const;
  [[nodiscard]] CUcontext native() const noexcept { return context_; }
  /// Makes the context current on the calling thread, permanently, and calls RelaxedCapture::of_thread(): for the
  /// library's own threads. Throws CudaError.
  void make_current() const;

 private:
  int ordinal_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

/// Makes the context current while this object exists; the destructor restores the previous one. For threads that are
/// not the library's own.
class CurrentContext {
 public:
  explicit CurrentContext(const CudaContext& context) noexcept;
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext();

 private:
  bool pushed_;
};

/// While this object exists, a capture that other code has begun in global mode neither fails because of the driver
/// calls of this thread nor has them refused. Without it the driver refuses some of them, cuEventQuery among them,
/// while any thread of the process captures in that mode.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept;
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture();
  /// The calling thread is the library's own: this holds for all its calls from now on.
  static void of_thread() noexcept;

 private:
  bool changed_ = false;
  CUstreamCaptureMode before_ = CU_STREAM_CAPTURE_MODE_GLOBAL;
};

}  // namespace cox::detail
