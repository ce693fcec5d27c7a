#pragma once

#include <coxswain/servers/cuda/driver/gpu_fault.hpp>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace cox::detail {

/// What the process knows of its fault:
///
///     none --(claim: the first)--> found, suspects not asked yet --(publish)--> known
///
/// Any thread.
class FaultState {
 public:
  FaultState() = default;
  FaultState(const FaultState&) = delete;
  FaultState& operator=(const FaultState&) = delete;

  /// The process's; also there when static objects are destroyed.
  [[nodiscard]] static FaultState& instance();

  /// Whether the caller was the first, and is to publish. Else blocks until the first has, but not for long: it may be
  /// asking for suspects that the caller holds a lock over.
  [[nodiscard]] bool claim(std::shared_ptr<const GpuFault> found) noexcept;
  /// By who claimed.
  void publish(std::shared_ptr<const GpuFault> fault) noexcept;
  void forget() noexcept;

  [[nodiscard]] bool known() const noexcept {
    return known_.load(std::memory_order_acquire);  // with publish's release: whoever sees it finds the fault
  }
  /// The whole fault; the cause alone as long as the suspects are not known; null if there is none.
  [[nodiscard]] std::shared_ptr<const GpuFault> fault() const noexcept;

 private:
  mutable std::mutex mutex_;
  std::condition_variable published_;
  bool claimed_ = false;                   // guarded by mutex_, as is the fault
  std::shared_ptr<const GpuFault> fault_;  // null before claim, and if there was no memory for it
  std::atomic<bool> known_{false};
};

}  // namespace cox::detail
