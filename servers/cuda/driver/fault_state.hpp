#pragma once

#include <coxswain/servers/cuda/driver/gpu_fault.hpp>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace cox::detail {

/// The state of the process's fault:
///
///     none --(first claim)--> found, suspects not collected yet --(publish)--> known
///
/// Any thread.
class FaultState {
 public:
  FaultState() = default;
  FaultState(const FaultState&) = delete;
  FaultState& operator=(const FaultState&) = delete;

  /// The state of the process. Never destroyed: usable while static objects are destroyed.
  [[nodiscard]] static FaultState& instance();

  /// Returns true if the caller is the first one, which must then call publish(). Otherwise blocks until the first one
  /// has published, for 20 ms at most: the first one may be collecting suspects, which may need a lock that the caller
  /// holds.
  [[nodiscard]] bool claim(std::shared_ptr<const GpuFault> found) noexcept;
  /// Publishes the fault with its suspects. Only after claim() has returned true.
  void publish(std::shared_ptr<const GpuFault> fault) noexcept;
  void forget() noexcept;

  [[nodiscard]] bool known() const noexcept {
    // Pairs with the release in publish(): a thread that sees true also sees the fault.
    return known_.load(std::memory_order_acquire);
  }
  /// The fault; without suspects until publish(); null if there is none.
  [[nodiscard]] std::shared_ptr<const GpuFault> fault() const noexcept;

 private:
  mutable std::mutex mutex_;
  std::condition_variable published_;
  bool claimed_ = false;                   // guarded by mutex_, as is the fault
  std::shared_ptr<const GpuFault> fault_;  // null before claim, and if there was no memory for it
  std::atomic<bool> known_{false};
};

}  // namespace cox::detail
