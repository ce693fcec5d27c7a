#pragma once

#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/servers/cuda/driver/operation_history.hpp>
#include <coxswain/servers/cuda/event/cuda_event.hpp>
#include <coxswain/servers/cuda/event/cuda_timeline.hpp>
#include <coxswain/servers/cuda/stream/launch_batch.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace cox::detail {

/// A stream of the driver, which several StreamIds may share, and what it was given. Device thread only.
class NativeStream {
 public:
  /// `launches_at_a_time`: kernels at most that the driver is given together. Throws CudaError, but not for a fault
  /// of the GPU, after which nothing is issued.
  NativeStream(StreamPriority priority, std::size_t launches_at_a_time);
  NativeStream(const NativeStream&) = delete;
  NativeStream& operator=(const NativeStream&) = delete;
  /// All work is complete.
  ~NativeStream();

  [[nodiscard]] StreamPriority priority() const noexcept { return priority_; }
  /// For who issues something on it: behind all launches.
  [[nodiscard]] CUstream native() noexcept {
    if (!batch_.empty()) [[unlikely]]
      flush();
    return stream_;
  }
  /// The piece that was noted last is this kernel. The driver is given it with what comes behind it: at the latest when
  /// anything else is issued on the stream, or by flush(). `launched`: what came of it, which it may be called with
  /// here. Throws std::bad_alloc.
  void launch(const KernelLaunch& launch, LaunchBatch::Launched launched) {
    if (batch_.size() >= launches_at_a_time_) flush();
    batch_.add(launch, std::move(launched));
  }
  /// The driver has not been given all launches.
  [[nodiscard]] bool has_launches() const noexcept { return !batch_.empty(); }
  void flush() noexcept {
    batch_.launch(stream_);
    if (on_flushed_) on_flushed_();
  }
  /// Has `flushed`, which must not throw, called after each flush(), when it is known what came of the launches.
  void set_flush_callback(std::function<void()> flushed) noexcept { on_flushed_ = std::move(flushed); }
  /// Of all that the stream was given, whoever's it is.
  [[nodiscard]] const CudaTimeline& timeline() const noexcept { return timeline_; }
  /// The next piece is about to be issued.
  void note(const OperationName& name, StreamId stream) noexcept {
    const std::uint64_t position = timeline_.submit();
    timeline_.issue();
    history_.note(position, name, stream);
  }
  /// An event behind all that was issued. Throws CudaError,
  /// std::bad_alloc.
  [[nodiscard]] const std::shared_ptr<CudaEvent>& event_after_all(CudaEvents& events);
  /// The event that covers so much of what was issued; null if that is complete. Throws CudaError, std::bad_alloc.
  [[nodiscard]] std::shared_ptr<CudaEvent> event_after(std::uint64_t position, CudaEvents& events);
  /// All that was issued up to `position` is complete when `event` is reached. Throws std::bad_alloc.
  void mark(std::uint64_t position, const std::shared_ptr<CudaEvent>& event) { timeline_.mark(position, event); }
  /// Looks how far the device has come.
  void poll() noexcept { timeline_.poll(); }

  /// The position of a slot that this stream waits for already.
  [[nodiscard]] std::uint64_t& waited_for(StreamSlot other) {
    const auto index = static_cast<std::size_t>(other);
    if (index >= waited_.size()) waited_.resize(index + 1);
    return waited_[index];
  }
  /// Calls `add(operation)` for the oldest `most` that are not known to be complete. Any thread.
  template <class Add>
  void for_each_suspect(std::size_t most, Add&& add) const {
    for (auto& operation : history_.after(timeline_.completed(), timeline_.submitted(), most)) add(operation);
  }

  std::size_t users = 0;      ///< StreamIds that share the stream
  bool is_dedicated = false;  ///< no other StreamId is ever put on it
  bool is_listed = false;     ///< among those with launches that the driver has not been given

 private:
  const StreamPriority priority_;
  const std::size_t launches_at_a_time_;
  CUstream stream_ = nullptr;  // null after a fault
  LaunchBatch batch_{driver()};
  std::function<void()> on_flushed_;
  CudaTimeline timeline_;
  OperationHistory history_;
  std::vector<std::uint64_t> waited_;  // by slot
};

}  // namespace cox::detail
