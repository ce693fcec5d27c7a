#pragma once

#include <coxswain/device_handle/service/thread_context.hpp>
#include <coxswain/servers/cuda/event/cuda_event.hpp>

#include <chrono>
#include <memory>

namespace cox::detail {

/// Looks at an event while the device thread has nothing to do, in place of who waits for it: the driver answers the
/// thread that has issued the work sooner than others (an H200, and a program of nothing else: by 0.2 us). For short
/// waits; who waits longer looks by himself. Device thread only.
class EventWatch final : public IdlePoll {
 public:
  EventWatch() = default;
  EventWatch(const EventWatch&) = delete;
  EventWatch& operator=(const EventWatch&) = delete;

  /// Nothing is looked at before.
  void attach(ThreadContext& thread) noexcept { thread_ = &thread; }
  /// The event that somebody is about to wait for, before he knows of it. It is looked at instead of the one before.
  void begin(const std::shared_ptr<CudaEvent>& event) noexcept;

 private:
  static constexpr std::chrono::microseconds longest{100};

  bool poll() noexcept override;
  void end() noexcept override;

  ThreadContext* thread_ = nullptr;
  std::shared_ptr<CudaEvent> event_;
  std::chrono::steady_clock::time_point since_;
};

}  // namespace cox::detail
