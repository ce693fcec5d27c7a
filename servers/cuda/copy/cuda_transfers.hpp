#pragma once

#include <coxswain/device_handle/service/post_queue.hpp>
#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/servers/cuda/copy/copy_engine.hpp>
#include <coxswain/servers/cuda/stream/cuda_streams.hpp>

#include <cstddef>
#include <exception>
#include <list>
#include <memory>
#include <vector>

namespace cox::detail {

/// The copies to and from pageable memory that are under way. Each counts like a piece of work on a slot of its own, so
/// that buffers and streams wait for it as for any other; what it reads may be poisoned, and what it writes if it fails
/// (L14). Device thread only.
class CudaTransfers {
 public:
  CudaTransfers(CudaStreams& streams, CopyEngine& engine, std::shared_ptr<PostQueue> posts)
      : streams_(streams), engine_(engine), posts_(std::move(posts)) {}
  CudaTransfers(const CudaTransfers&) = delete;
  CudaTransfers& operator=(const CudaTransfers&) = delete;

  /// The slot that the next transfer will have. Throws std::bad_alloc.
  [[nodiscard]] StreamSlot next_slot();
  /// Begins a transfer, behind `waits`, on next_slot(). `task.after` is filled in here. Returns where it is. Throws
  /// CudaError, std::bad_alloc, std::system_error; then nothing has begun.
  StreamPosition begin(const StreamPositions& waits, CopyTask task);

  /// Hands over what can begin by now. Returns whether there was anything.
  bool advance();
  /// Some have not ended.
  [[nodiscard]] bool in_flight() const noexcept { return in_flight_ != 0; }
  /// Ends what has not been handed over. After a fault of the GPU.
  void abandon() noexcept;

 private:
  struct Waiting {
    StreamPositions waits;
    CopyTask task;
  };
  /// Notes the end on the device thread.
  void end(StreamSlot slot, std::shared_ptr<CudaEvent> event);
  void check_memory(const CopyTask& task, std::exception_ptr& error) const noexcept;
  void start(const StreamPositions& waits, CopyTask&& task);
  void fail(Waiting transfer, const std::exception_ptr& error) noexcept;

  CudaStreams& streams_;
  CopyEngine& engine_;
  const std::shared_ptr<PostQueue> posts_;
  std::list<Waiting> waiting_;
  std::vector<StreamSlot> slots_;  // all that are ours
  std::size_t turn_ = 0;
  std::size_t in_flight_ = 0;
};

}  // namespace cox::detail
