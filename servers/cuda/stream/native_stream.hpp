#pragma once

#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
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

/// A driver stream, which several StreamIds may share, and the work that was issued on it. Device thread only.
class NativeStream {
 public:
  /// `launches_at_a_time`: maximum number of kernels that are passed to the driver together. Throws CudaError, but not
  /// for a GPU fault, after which nothing is issued.
  NativeStream(StreamPriority priority, std::size_t launches_at_a_time);
  /// A stream created outside the library, which outlives its use here: see set_foreign().
  explicit NativeStream(std::size_t launches_at_a_time);
  NativeStream(const NativeStream&) = delete;
  NativeStream& operator=(const NativeStream&) = delete;
  /// Precondition: all work has completed.
  ~NativeStream();

  /// Makes the graphs of the batch: see LaunchBatch::make_graphs(). `graphs`: with the priority of this stream. Throws
  /// CudaError.
  void make_graphs(std::shared_ptr<const LaunchGraphs> graphs) {
    if (launches_at_a_time_ > 1) batch_.make_graphs(std::move(graphs), launches_at_a_time_);
  }
  /// The priority in the driver's numbering.
  [[nodiscard]] int native_priority() const noexcept { return native_priority_; }
  [[nodiscard]] StreamPriority priority() const noexcept { return priority_; }
  /// The driver stream, for callers that issue work on it. Passes all batched launches to the driver first.
  [[nodiscard]] CUstream native() noexcept {
    if (!batch_.empty()) [[unlikely]]
      flush();
    return native_;
  }
  /// Adds a kernel to the batch; note() has counted it as the last piece. The driver is given the batch when it is
  /// full, when anything else is issued on the stream, or by flush(). `launched` is then called with the outcome.
  /// Callbacks of earlier launches may run during this call. Throws std::bad_alloc.
  void add_launch(const KernelLaunch& launch, LaunchBatch::Launched launched) {
    if (batch_.size() >= launches_at_a_time_) flush();
    batch_.add(launch, std::move(launched));
  }
  /// Some launches have not been passed to the driver.
  [[nodiscard]] bool has_launches() const noexcept { return !batch_.empty(); }
  void flush() noexcept {
    batch_.flush(native_);
    if (on_flushed_) on_flushed_();
  }
  /// Sets a callback that runs after each flush(), when the outcome of the launches is known. `flushed` must not throw.
  void set_flush_callback(std::function<void()> flushed) noexcept { on_flushed_ = std::move(flushed); }
  /// Counts all work issued on the driver stream, of all StreamIds.
  [[nodiscard]] const CudaTimeline& timeline() const noexcept { return timeline_; }
  /// Counts and records the next piece, which is about to be issued.
  void note(const OperationName& name, StreamId stream) noexcept {
    const std::uint64_t position = timeline_.submit();
    timeline_.issue();
    history_.note(position, name, stream);
  }
  /// An event after all issued work. Throws CudaError, std::bad_alloc.
  [[nodiscard]] const std::shared_ptr<CudaEvent>& event_after_all(CudaEvents& events);
  /// The first event at or after `position`, recorded now if there is none; null if `position` is known to be complete.
  /// Throws CudaError, std::bad_alloc.
  [[nodiscard]] std::shared_ptr<CudaEvent> event_after(std::uint64_t position, CudaEvents& events);
  /// All work issued up to `position` is complete when `event` is reached. Throws std::bad_alloc.
  void mark(std::uint64_t position, const std::shared_ptr<CudaEvent>& event) { timeline_.mark(position, event); }
  /// Polls for completed work.
  void poll() noexcept { timeline_.poll(); }

  /// The position of slot `other` that this stream already waits for. Throws std::bad_alloc.
  [[nodiscard]] std::uint64_t& waited_for(StreamSlot other) {
    const auto index = static_cast<std::size_t>(other);
    if (index >= waited_.size()) waited_.resize(index + 1);
    return waited_[index];
  }
  /// Calls `add(operation)` for the oldest operations, at most `most`, that are not known to be complete. Any thread.
  template <class Add>
  void for_each_suspect(std::size_t most, Add&& add) const {
    for (auto& operation : history_.after(timeline_.completed(), timeline_.submitted(), most)) add(operation);
  }

  /// Blocks until the work that was issued here is complete, whatever the owner of a foreign stream has queued behind
  /// it.
  void wait_for_own(CudaEvents& events) noexcept;
  [[nodiscard]] bool is_foreign() const noexcept { return is_foreign_; }
  /// The stream from now on; null: none. Precondition: is_foreign(), and all work has completed.
  void set_foreign(CUstream stream) noexcept {
    native_ = stream;
    waited_.clear();
  }

  std::size_t users = 0;      ///< StreamIds that share the stream
  std::size_t uses = 0;       ///< of a foreign stream: calls of use_stream without their end_use
  bool is_dedicated = false;  ///< no other StreamId is ever assigned to it
  bool is_listed = false;     ///< in the list of streams with launches not yet passed to the driver

 private:
  const StreamPriority priority_;
  const std::size_t launches_at_a_time_;
  const bool is_foreign_ = false;
  int native_priority_ = 0;
  DriverStream stream_;        // null after a GPU fault, and if the stream is foreign
  CUstream native_ = nullptr;  // stream_, or the foreign one
  LaunchBatch batch_{driver()};
  std::function<void()> on_flushed_;
  CudaTimeline timeline_;
  OperationHistory history_;
  std::vector<std::uint64_t> waited_;  // by slot
};

}  // namespace cox::detail
