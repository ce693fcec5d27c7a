#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/device_handle/queue/adaptive_mutex.hpp>
#include <coxswain/runtime/async/device_event.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/event/cuda_poller.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

namespace cox::detail {

class CudaEvents;

/// An event of the driver, and its place among those that nobody has.
struct NativeEvent {
  CUevent event = nullptr;
  NativeEvent* next = nullptr;
};

/// A place in a stream: an event of the driver, recorded once, which goes back to the device's other events when nobody
/// refers to it any more; or a piece of work before such an event that counts itself (CudaEvents::make_counted). Any
/// thread.
class CudaEvent final : public DeviceEvent, public Polled, public std::enable_shared_from_this<CudaEvent> {
 public:
  CudaEvent(std::shared_ptr<CudaEvents> events, NativeEvent& native) noexcept
      : events_(std::move(events)), native_(&native) {}
  CudaEvent(std::shared_ptr<CudaEvents> events, std::shared_ptr<CudaEvent> later, std::uint32_t count) noexcept
      : events_(std::move(events)), later_(std::move(later)), count_(count) {}
  ~CudaEvent() override;

  /// What is given to the stream from here on comes behind the event. Throws CudaError.
  void enqueue_wait(CUstream stream) const;
  /// Precondition: it is none that counts itself.
  [[nodiscard]] CUevent native() const noexcept { return native_->event; }

  // As DeviceEvent says. After a fault of the GPU everything counts as reached.
  [[nodiscard]] bool reached() noexcept override;
  /// Whether somebody has found it reached. No call of the driver.
  [[nodiscard]] bool known_reached() const noexcept { return reached_.load(std::memory_order_acquire); }
  /// The caller knows by other ways that the device has come there.
  void mark_reached() noexcept { reached_.store(true, std::memory_order_release); }
  /// As reached(), for who looks again and again: where another thread looks just now, what that one finds will do.
  [[nodiscard]] bool poll() noexcept override;
  /// The caller looks by reached() from here to end_watch(), and poll() leaves it to him; false: somebody else looks
  /// just now.
  [[nodiscard]] bool begin_watch() noexcept { return !polling_.exchange(true, std::memory_order_acquire); }
  void end_watch() noexcept { polling_.store(false, std::memory_order_release); }
  void wait() noexcept override;
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline) noexcept override;
  void notify(UniqueFunction<void()> function) override;
  /// As notify, perhaps a millisecond later: see CudaPoller::add_lazily.
  void notify_lazily(UniqueFunction<void()> function);

 private:
  std::shared_ptr<CudaEvents> events_;
  NativeEvent* native_ = nullptr;     // null: it counts itself
  std::shared_ptr<CudaEvent> later_;  // null: it does not
  std::uint32_t count_ = 0;           // which says that it is over
  std::atomic<bool> reached_{false};
  std::atomic<bool> polling_{false};
};

class CudaPoller;

/// The events of one device: pooled, since creating one costs more than recording it. They are taken by few threads,
/// and given back by whoever has waited last: on a list that is taken over whole, when all others are in use, so that
/// the two hardly meet. Keeps the device's context. Any thread.
class CudaEvents : public std::enable_shared_from_this<CudaEvents> {
 public:
  /// Timed events can tell how much time lies between two of them, and cost more.
  enum class Timing : std::uint8_t { Off, On };

  CudaEvents(std::shared_ptr<CudaContext> context, std::shared_ptr<CudaPoller> poller, Timing timing);
  CudaEvents(const CudaEvents&) = delete;
  CudaEvents& operator=(const CudaEvents&) = delete;
  ~CudaEvents();

  /// An event, to be recorded before anybody else knows of it. Throws CudaError, std::bad_alloc.
  [[nodiscard]] std::shared_ptr<CudaEvent> acquire();
  /// The same, recorded on `stream`.
  [[nodiscard]] std::shared_ptr<CudaEvent> record(CUstream stream);

  /// Where kernels of one stream count: a word that the device writes and all may read; it counts around. At first 0.
  /// Made by the first call, on the device thread and before an event counts itself. Throws CudaError.
  [[nodiscard]] CUdeviceptr counter();
  /// The end of the kernel that comes before what sets the counter to `count`, on the stream where that and then
  /// `later` come. Throws std::bad_alloc.
  [[nodiscard]] std::shared_ptr<CudaEvent> make_counted(std::shared_ptr<CudaEvent> later, std::uint32_t count);

  [[nodiscard]] const CudaContext& context() const noexcept { return *context_; }
  [[nodiscard]] CudaPoller& poller() noexcept { return *poller_; }

 private:
  friend class CudaEvent;
  void release(NativeEvent& event) noexcept;
  // Acquire: what the device did before is there.
  [[nodiscard]] bool counter_reached(std::uint32_t count) const noexcept {
    return static_cast<std::int32_t>(counter_->load(std::memory_order_acquire) - count) >= 0;
  }

  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<CudaPoller> poller_;
  const unsigned flags_;
  AdaptiveMutex mutex_;
  std::deque<NativeEvent> made_;                   // guarded by mutex_
  NativeEvent* free_ = nullptr;                    // guarded by mutex_
  std::atomic<std::uint32_t>* counter_ = nullptr;  // in page-locked memory; set before events that count themselves
  alignas(64) std::atomic<NativeEvent*> given_back_{nullptr};
};

}  // namespace cox::detail
