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

/// Reports that a call has returned a sticky error (cuda_try.hpp). The first such error becomes the fault of the
/// process: it is logged, written to the file that COX_FAULT_REPORT names if that is set, and passed to all listeners.
/// Any thread. A thread that reports an error at the same time waits until the first one has collected the suspects,
/// for 20 ms at most.
void report_gpu_fault(CUresult result, const char* call) noexcept;

/// Whether the process has a fault. One acquire load: device threads check it before every operation.
[[nodiscard]] bool gpu_faulted() noexcept;

/// The error with which every call fails after a fault: ServerError Unhealthy (a CudaError), whose errors() are the
/// fault. Null if there is no fault.
[[nodiscard]] std::exception_ptr gpu_fault_error(std::source_location site);
/// Throws gpu_fault_error(). Precondition: gpu_faulted().
[[noreturn]] void throw_gpu_fault(std::source_location site);

/// Tests only: resets the process to a state without a fault. Listeners stay registered and are notified of the next
/// fault.
void forget_gpu_fault() noexcept;

/// A listener for the fault; each device has one. The destructor deregisters it, and waits for a callback in progress.
/// A listener that is created after the notification is not notified: check gpu_faulted() after creating one. Any
/// thread.
class FaultListener {
 public:
  /// `suspects`: appends the device's operations that are not known to have completed. Called once, on the thread that
  /// found the fault, before any listener is notified; must not call the driver. `on_fault`: called once when the fault
  /// has been published, on the same thread; must not block. Neither may throw, or create or destroy a listener.
  FaultListener(std::function<void(std::vector<GpuFault::Suspect>&)> suspects, std::function<void()> on_fault);
  FaultListener(const FaultListener&) = delete;
  FaultListener& operator=(const FaultListener&) = delete;
  ~FaultListener();

 private:
  std::uint64_t id_;
};

}  // namespace cox::detail
