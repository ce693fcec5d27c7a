#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/device_handle/queue/adaptive_mutex.hpp>
#include <coxswain/runtime/async/device_event.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/servers/cuda/event/cuda_poller.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

namespace cox::detail {

class CudaEvents;

/// A driver event, and its link in the list of free events.
struct NativeEvent {
  DriverEvent event;
  NativeEvent* next = nullptr;
};

/// A position in a stream. Either a driver event, recorded once, which returns to the device's pool when the last
/// reference is dropped; or the end of a kernel, which the stream reports by a counter before a later driver event
/// (CudaEvents::make_counted). Any thread.
class CudaEvent final : public DeviceEvent, public Polled, public std::enable_shared_from_this<CudaEvent> {
 public:
  CudaEvent(std::shared_ptr<CudaEvents> events, NativeEvent& native) noexcept
      : events_(std::move(events)), native_(&native) {}
  CudaEvent(std::shared_ptr<CudaEvents> events, std::shared_ptr<CudaEvent> later, std::uint32_t count) noexcept
      : events_(std::move(events)), later_(std::move(later)), count_(count) {}
  ~CudaEvent() override;

  /// Work issued on `stream` from now on runs after the event. Throws CudaError.
  void enqueue_wait(CUstream stream) const;
  /// Precondition: not made by CudaEvents::make_counted.
  [[nodiscard]] CUevent native() const noexcept { return native_->event.get(); }

  // See DeviceEvent. After a GPU fault every event counts as reached.
  [[nodiscard]] bool reached() noexcept override;
  /// Whether a thread has already found the event reached. Makes no driver call.
  [[nodiscard]] bool known_reached() const noexcept { return reached_.load(std::memory_order_acquire); }
  /// The caller knows by other means that the device has reached the event.
  void mark_reached() noexcept { reached_.store(true, std::memory_order_release); }
  /// As reached(), for repeated polling: while another thread polls the event, returns what is already known.
  [[nodiscard]] bool poll() noexcept override;
  /// Makes the caller the only thread that polls this event, by reached(), until end_watch(): poll() of other threads
  /// returns what is known. Returns false if another thread is polling now.
  [[nodiscard]] bool begin_watch() noexcept { return !polling_.exchange(true, std::memory_order_acquire); }
  void end_watch() noexcept { polling_.store(false, std::memory_order_release); }
  void wait() noexcept override;
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline) noexcept override;
  void notify(UniqueFunction<void()> function) override;
  /// As notify(), but may call `function` a millisecond late: see CudaPoller::add_lazily.
  void notify_lazily(UniqueFunction<void()> function);

 private:
  std::shared_ptr<CudaEvents> events_;
  NativeEvent* native_ = nullptr;     // null: made by make_counted()
  std::shared_ptr<CudaEvent> later_;  // null: has a driver event of its own
  std::uint32_t count_ = 0;           // counter value at which it is reached
  std::atomic<bool> reached_{false};
  std::atomic<bool> polling_{false};
};

class CudaPoller;

/// The event pool of one device; creating an event costs more than recording it. Few threads acquire events, under a
/// mutex. The last thread that waits for an event releases it, to a lock-free list. acquire() takes over that whole
/// list when it has no other free event, so acquiring and releasing threads rarely contend. Keeps the device's context
/// alive. Any thread.
class CudaEvents : public std::enable_shared_from_this<CudaEvents> {
 public:
  /// Timed events allow measuring the time between two of them, and cost more.
  enum class Timing : std::uint8_t { Off, On };

  CudaEvents(std::shared_ptr<CudaContext> context, std::shared_ptr<CudaPoller> poller, Timing timing);
  CudaEvents(const CudaEvents&) = delete;
  CudaEvents& operator=(const CudaEvents&) = delete;
  ~CudaEvents();

  /// An event that is not recorded yet. Record it before another thread gets it. Throws CudaError, std::bad_alloc.
  [[nodiscard]] std::shared_ptr<CudaEvent> acquire();
  /// An event recorded on `stream`. Throws CudaError, std::bad_alloc.
  [[nodiscard]] std::shared_ptr<CudaEvent> record(CUstream stream);

  /// A word, initially 0, to which kernels of one stream write the number of completed kernels; all devices and the
  /// host may read it. It wraps around. Allocated by the first call, which is on the device thread and before
  /// make_counted(). Throws CudaError.
  [[nodiscard]] CUdeviceptr counter();
  /// The end of a kernel: reached when the next kernel of its stream sets the counter to `count`, or when `later` is
  /// reached. `later`: event recorded after that kernel on the same stream. Throws std::bad_alloc.
  [[nodiscard]] std::shared_ptr<CudaEvent> make_counted(std::shared_ptr<CudaEvent> later, std::uint32_t count);

  [[nodiscard]] const CudaContext& context() const noexcept { return *context_; }
  [[nodiscard]] CudaPoller& poller() noexcept { return *poller_; }

 private:
  friend class CudaEvent;
  void release(NativeEvent& event) noexcept;
  // Acquire: pairs with the system-scope release store of the kernel that sets the counter; makes earlier results
  // visible.
  [[nodiscard]] bool counter_reached(std::uint32_t count) const noexcept {
    const auto* const word = static_cast<const std::atomic<std::uint32_t>*>(counter_.get());
    return static_cast<std::int32_t>(word->load(std::memory_order_acquire) - count) >= 0;
  }

  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<CudaPoller> poller_;
  const unsigned flags_;
  AdaptiveMutex mutex_;
  std::deque<NativeEvent> made_;  // guarded by mutex_
  NativeEvent* free_ = nullptr;   // guarded by mutex_
  DriverHostMemory counter_;      // an atomic word; allocated before make_counted() is used
  alignas(64) std::atomic<NativeEvent*> given_back_{nullptr};
};

}  // namespace cox::detail
