#pragma once

#include <coxswain/runtime/detail/adaptive_mutex.hpp>
#include <coxswain/runtime/milestone.hpp>
#include <coxswain/runtime/unique_function.hpp>
#include <coxswain/servers/cuda/detail/cuda_context.hpp>
#include <coxswain/servers/cuda/detail/driver.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace cox::detail {

class CudaEvents;

/// An event of the driver, recorded once, which goes back to the device's other events when nobody refers to it any
/// more. Any thread.
class CudaEvent final : public Milestone, public std::enable_shared_from_this<CudaEvent> {
 public:
  CudaEvent(std::shared_ptr<CudaEvents> events, CUevent native) noexcept
      : events_(std::move(events)), native_(native) {}
  ~CudaEvent() override;

  [[nodiscard]] CUevent native() const noexcept { return native_; }

  // As Milestone says. After a fault of the GPU everything counts as reached.
  [[nodiscard]] bool reached() noexcept override;
  /// Whether somebody has found it reached. No call of the driver.
  [[nodiscard]] bool found_reached() const noexcept { return reached_.load(std::memory_order_acquire); }
  void wait() noexcept override;
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline) noexcept override;
  void notify(UniqueFunction<void()> function) override;
  /// As notify, perhaps a millisecond later: see CudaPoller::add_lazily.
  void notify_lazily(UniqueFunction<void()> function);

 private:
  std::shared_ptr<CudaEvents> events_;
  CUevent native_;
  std::atomic<bool> reached_{false};
};

class CudaPoller;

/// The events of one device: pooled, since creating one costs more than recording it. Keeps the device's context. Any
/// thread.
class CudaEvents : public std::enable_shared_from_this<CudaEvents> {
 public:
  /// Timed events can tell how much time lies between two of them, and cost more.
  enum class Timing : std::uint8_t { Off, On };

  CudaEvents(std::shared_ptr<CudaContext> context, std::shared_ptr<CudaPoller> poller, Timing timing);
  CudaEvents(const CudaEvents&) = delete;
  CudaEvents& operator=(const CudaEvents&) = delete;
  ~CudaEvents();

  /// An event, to be recorded before anybody else knows of it. Throws CudaError, std::bad_alloc.
  [[nodiscard]] std::shared_ptr<CudaEvent> take();
  /// The same, recorded on `stream`.
  [[nodiscard]] std::shared_ptr<CudaEvent> record(CUstream stream);

  [[nodiscard]] const CudaContext& context() const noexcept { return *context_; }
  [[nodiscard]] CudaPoller& poller() noexcept { return *poller_; }

 private:
  friend class CudaEvent;
  void give_back(CUevent event) noexcept;

  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<CudaPoller> poller_;
  const unsigned flags_;
  AdaptiveMutex mutex_;
  std::vector<CUevent> free_;  // guarded by mutex_; with room for all events there are
  std::size_t made_ = 0;       // guarded by mutex_
};

}  // namespace cox::detail
