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

/// The in-flight copies to and from pageable memory. Each counts like a piece of work on a slot of its own, so that
/// buffers and streams wait for it as for other work. The memory that a copy reads may be poisoned, and the memory that
/// it writes is poisoned if the copy fails (L14). Device thread only.
class CudaTransfers {
 public:
  CudaTransfers(CudaStreams& streams, CopyEngine& engine, std::shared_ptr<PostQueue> posts)
      : streams_(streams), engine_(engine), posts_(std::move(posts)) {}
  CudaTransfers(const CudaTransfers&) = delete;
  CudaTransfers& operator=(const CudaTransfers&) = delete;

  /// The slot of the transfer that begins next. Throws std::bad_alloc.
  [[nodiscard]] StreamSlot next_slot();
  /// Begins a transfer on next_slot(), to start after `waits`. Fills in `task.dependencies`. Returns the position of
  /// its end. Throws CudaError, std::bad_alloc, std::system_error; then no transfer has begun.
  StreamPosition begin(const StreamPositions& waits, CopyTask task);

  /// Hands the transfers that can start now to the engine. Returns whether there were any.
  bool advance();
  /// Whether any transfer has not ended.
  [[nodiscard]] bool in_flight() const noexcept { return in_flight_ != 0; }
  /// Ends all transfers that have not been handed to the engine. After a GPU fault.
  void abandon() noexcept;

 private:
  struct Waiting {
    StreamPositions waits;
    CopyTask task;
  };
  struct Ended;

  /// Records the end of the transfer of that slot. Device thread.
  void end(StreamSlot slot, std::shared_ptr<CudaEvent> event) noexcept;
  void check_memory(const CopyTask& task, std::exception_ptr& error) const noexcept;
  void start(const StreamPositions& waits, CopyTask&& task);
  void fail(Waiting transfer, const std::exception_ptr& error) noexcept;

  CudaStreams& streams_;
  CopyEngine& engine_;
  const std::shared_ptr<PostQueue> posts_;
  std::list<Waiting> waiting_;
  std::vector<StreamSlot> slots_;  // all slots of transfers
  std::size_t turn_ = 0;
  std::size_t in_flight_ = 0;
};

}  // namespace cox::detail
