#pragma once

#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/driver/gpu_fault.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <source_location>
#include <vector>

namespace cox::detail {

/// A call has returned an error that stays (cuda_try.hpp). The first becomes the process's fault: it is logged, written
/// to the file that COX_FAULT_REPORT names if it does, and told to everybody who listens. Any thread. A thread that
/// comes second waits for the suspects of the first, for a few milliseconds at most.
void report_gpu_fault(CUresult result, const char* call) noexcept;

/// Whether there is a fault. One relaxed load: device threads ask before everything they do.
[[nodiscard]] bool gpu_faulted() noexcept;

/// ServerError Unhealthy (a CudaError) whose errors() are the fault: what every call is answered with from then on.
/// Null if there is none.
[[nodiscard]] std::exception_ptr gpu_fault_error(std::source_location site);
/// Throws that. Precondition: gpu_faulted().
[[noreturn]] void throw_gpu_fault(std::source_location site);

/// Tests only: there has been no fault. Who listens stays, and hears of the next one.
void forget_gpu_fault() noexcept;

/// Somebody who must know of the fault: a device. Deregistered by the destructor, which waits for a call that is under
/// way. Who is made after the fault was told is not told: ask gpu_faulted() after making one. Any thread.
class FaultListener {
 public:
  /// `suspects`: adds what is not known to be complete on the device; called once, on the thread that found the fault,
  /// before anybody is told; must not call the driver. `on_fault`: the fault is known; called once, on that thread, and
  /// must not block. Neither may throw, or make or destroy a listener.
  FaultListener(std::function<void(std::vector<GpuFault::Suspect>&)> suspects, std::function<void()> on_fault);
  FaultListener(const FaultListener&) = delete;
  FaultListener& operator=(const FaultListener&) = delete;
  ~FaultListener();

 private:
  std::uint64_t id_;
};

}  // namespace cox::detail
