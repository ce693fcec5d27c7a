#pragma once

#include <coxswain/servers/cuda/driver/driver.hpp>

#include <memory>

namespace cox::detail {

/// The primary context of a device, which the CUDA runtime uses too, kept open while somebody holds this. Any thread.
class CudaContext {
 public:
  /// Opens it, or finds it open. Blocks for that the first time. Throws CudaError.
  [[nodiscard]] static std::shared_ptr<CudaContext> open(int ordinal);
  /// Null unless somebody holds it.
  [[nodiscard]] static std::shared_ptr<CudaContext> find(int ordinal);

  explicit CudaContext(int ordinal);
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  ~CudaContext();

  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] CUdevice device() const noexcept { return device_; }
  [[nodiscard]] CUcontext native() const noexcept { return context_; }
  /// Makes it the calling thread's for good: for threads of our own. Throws CudaError.
  void make_current() const;

 private:
  int ordinal_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

/// The context is current while this lives, then what was before: for threads that are not ours.
class CurrentContext {
 public:
  explicit CurrentContext(const CudaContext& context) noexcept;
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext();

 private:
  bool pushed_;
};

}  // namespace cox::detail
