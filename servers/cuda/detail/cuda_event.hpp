#pragma once

#include <coxswain/runtime/milestone.hpp>
#include <coxswain/runtime/unique_function.hpp>
#include <coxswain/servers/cuda/detail/cuda_context.hpp>
#include <coxswain/servers/cuda/detail/driver.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace cox::detail {

class CudaEvents;

/// An event of the driver, and a word of page-locked memory that a stream can write when it comes there: whoever waits
/// sees that a microsecond before the driver says that the event is reached.
struct NativeEvent {
  CUevent event = nullptr;
  std::atomic<std::uint32_t>* word = nullptr;  ///< has the same address on the device
  std::uint32_t last_value = 0;                ///< that was or will be written; they only grow
};

/// An event of the driver, recorded once, which goes back to the device's other events when nobody refers to it any
/// more. Any thread.
class CudaEvent final : public Milestone, public std::enable_shared_from_this<CudaEvent> {
 public:
  /// `awaited`: its word will be written.
  CudaEvent(std::shared_ptr<CudaEvents> events, const NativeEvent& native, bool awaited) noexcept
      : events_(std::move(events)), native_(native), awaited_(awaited) {}
  ~CudaEvent() override;

  [[nodiscard]] CUevent native() const noexcept { return native_.event; }

  // As Milestone says. After a fault of the GPU everything counts as reached.
  [[nodiscard]] bool reached() noexcept override;
  void wait() noexcept override;
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline) noexcept override;
  void notify(UniqueFunction<void()> function) override;
  /// As notify, perhaps a millisecond later: see CudaPoller::add_lazily.
  void notify_lazily(UniqueFunction<void()> function);

 private:
  friend class CudaEvents;
  [[nodiscard]] bool word_written() const noexcept {
    // Acquire: what the stream did before is visible. The difference, since values wrap around.
    return awaited_ &&
           static_cast<std::int32_t>(native_.word->load(std::memory_order_acquire) - native_.last_value) >= 0;
  }

  const std::shared_ptr<CudaEvents> events_;
  const NativeEvent native_;
  const bool awaited_;
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
  [[nodiscard]] std::shared_ptr<CudaEvent> take() { return take(false); }
  /// The same, recorded on `stream`.
  [[nodiscard]] std::shared_ptr<CudaEvent> record(CUstream stream);
  /// The same, for a client that waits: seen earlier, and a microsecond dearer to record.
  [[nodiscard]] std::shared_ptr<CudaEvent> record_awaited(CUstream stream);

  [[nodiscard]] const CudaContext& context() const noexcept { return *context_; }
  [[nodiscard]] CudaPoller& poller() noexcept { return *poller_; }

 private:
  friend class CudaEvent;
  [[nodiscard]] std::shared_ptr<CudaEvent> take(bool awaited);
  [[nodiscard]] NativeEvent take_native();
  [[nodiscard]] NativeEvent make_native();
  void give_back(const NativeEvent& event) noexcept;

  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<CudaPoller> poller_;
  const unsigned flags_;
  std::mutex mutex_;
  std::vector<NativeEvent> free_;  // guarded by mutex_, as all below; with room for all events there are
  std::size_t made_ = 0;
  std::vector<void*> words_;  // page-locked; of so many events each
};

}  // namespace cox::detail
