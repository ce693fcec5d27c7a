#include <coxswain/servers/cuda/copy/cuda_transfers.hpp>

#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>

#include <exception>
#include <source_location>
#include <string>
#include <utility>

namespace cox::detail {
namespace {

/// The error of a failed upload. An IoError gets the location of the upload added to its text.
std::exception_ptr failed_upload(const std::exception_ptr& error, const Location& location, std::source_location site) {
  try {
    std::rethrow_exception(error);
  } catch (const IoError& io) {
    return std::make_exception_ptr(IoError(io.kind(),
                                           std::string(io.what()) + ", for an upload to " + location.to_string(), site,
                                           io.cause(), io.sizes()));
  } catch (...) {
    return error;
  }
}

}  // namespace

/// Posted when a transfer has completed.
struct CudaTransfers::Ended final : PostQueue::Posted {
  Ended(CudaTransfers& transfers, StreamSlot at) noexcept : owner(transfers), slot(at) {}
  void run_posted() noexcept override { owner.end(slot, std::move(event)); }

  CudaTransfers& owner;
  const StreamSlot slot;
  std::shared_ptr<CudaEvent> event;
};

// A slot whose last transfer is complete, otherwise a new one.
StreamSlot CudaTransfers::next_slot() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const StreamSlot slot = slots_[(turn_ + i) % slots_.size()];
    CudaTimeline& timeline = streams_.timeline(slot);
    timeline.poll();
    if (timeline.completed() == timeline.submitted()) {
      turn_ += i;
      return slot;
    }
  }
  slots_.reserve(slots_.size() + 1);
  turn_ = slots_.size();
  slots_.push_back(streams_.acquire_slot());
  return slots_.back();
}

StreamPosition CudaTransfers::begin(const StreamPositions& waits, CopyTask task) {
  const StreamSlot slot = next_slot();
  CudaTimeline& timeline = streams_.timeline(slot);
  timeline.reserve_end();
  auto ended = std::make_shared<Ended>(*this, slot);
  task.on_completed = [this, ended = std::move(ended), posts = posts_, done = std::move(task.on_completed)](
                          CopyTask& ending, std::exception_ptr error, std::shared_ptr<CudaEvent> end) mutable {
    const auto note_end = [&] {
      ended->event = end;
      posts->post(std::move(ended));
    };
    check_memory(ending, error);
    // Download: post the end before done(), so that a client which has the bytes finds the memory no longer in use.
    // Upload: post the end after done(), so that a thread that waits for the end finds the failure.
    if (ending.direction == CopyTask::Direction::ToHost) note_end();
    done(ending, std::move(error), end);
    // Release the bytes before the end of an upload is visible.
    ending.parts.clear();
    if (ending.direction == CopyTask::Direction::ToDevice) note_end();
  };
  if (streams_.issued(waits)) {
    start(waits, std::move(task));
  } else {
    waiting_.push_back({waits, std::move(task)});
  }
  ++in_flight_;
  return {slot, timeline.submit()};
}

// All work before the copy has completed, and no work after it has started: the memory is still in the state that the
// copy has seen.
void CudaTransfers::check_memory(const CopyTask& task, std::exception_ptr& error) const noexcept {
  if (error == nullptr) error = task.memory.refusal(task.location);
  if (error == nullptr) return task.memory.set_succeeded();
  if (task.direction == CopyTask::Direction::ToDevice) error = failed_upload(error, task.location, task.memory.site());
  streams_.poison_log()->set_failed(task.memory.uses(), error, MemoryFailure::Contents::Undefined);
}

// If it throws, the task is unchanged.
void CudaTransfers::start(const StreamPositions& waits, CopyTask&& task) {
  streams_.add_events(waits, task.dependencies);
  engine_.add(std::move(task));
}

bool CudaTransfers::advance() {
  bool any = false;
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    if (!streams_.issued(next->waits)) {
      ++next;
      continue;
    }
    Waiting first = std::move(*next);
    next = waiting_.erase(next);
    try {
      start(first.waits, std::move(first.task));
    } catch (...) {
      fail(std::move(first), std::current_exception());
    }
    any = true;
  }
  return any;
}

// Ends the transfer only when all that it waits for has completed: later accesses to the memory wait for this end.
void CudaTransfers::fail(Waiting transfer, const std::exception_ptr& error) noexcept {
  std::shared_ptr<CopyTask> task;
  try {
    task = std::make_shared<CopyTask>(std::move(transfer.task));
    streams_.when_complete(transfer.waits, [task, error] { task->on_completed(*task, error, nullptr); });
  } catch (...) {  // out of memory for the wait: end it now
    CopyTask& left = task != nullptr ? *task : transfer.task;
    left.on_completed(left, error, nullptr);
  }
}

void CudaTransfers::end(StreamSlot slot, std::shared_ptr<CudaEvent> event) noexcept {
  CudaTimeline& timeline = streams_.timeline(slot);
  timeline.end(timeline.submitted(), std::move(event));  // each slot has one transfer at a time
  --in_flight_;
}

void CudaTransfers::abandon() noexcept {
  for (auto left = std::exchange(waiting_, {}); Waiting & waiting : left)
    waiting.task.on_completed(waiting.task, gpu_fault_error(std::source_location::current()), nullptr);
}

}  // namespace cox::detail
