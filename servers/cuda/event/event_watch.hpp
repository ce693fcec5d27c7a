#pragma once

#include <coxswain/device_handle/base/idle_work.hpp>
#include <coxswain/servers/cuda/event/cuda_event.hpp>

#include <chrono>
#include <memory>

namespace cox::detail {

/// Looks at an event while the device thread has nothing to do, in place of who waits for it: the driver answers the
/// thread that has issued the work sooner than others (an H200, and a program of nothing else: by 0.2 us). For short
/// waits; who waits longer looks by himself. Device thread only.
class EventWatch final : public IdleWork {
 public:
  EventWatch() = default;
  EventWatch(const EventWatch&) = delete;
  EventWatch& operator=(const EventWatch&) = delete;

  /// The event that somebody is about to wait for, before he knows of it. It is looked at instead of the one before.
  void begin(const std::shared_ptr<CudaEvent>& event) noexcept;

 private:
  static constexpr std::chrono::microseconds longest{100};

  bool look() noexcept override;
  void end() noexcept override;

  std::shared_ptr<CudaEvent> event_;
  std::chrono::steady_clock::time_point since_;
};

}  // namespace cox::detail
