#include <coxswain/servers/cuda/copy/cuda_transfers.hpp>

#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>

#include <exception>
#include <source_location>
#include <string>
#include <utility>

namespace cox::detail {
namespace {

/// A failure of a copy, with what it was for.
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

// A slot whose last transfer is complete, else a new one.
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
  task.on_completed = [this, slot, posts = posts_, done = std::move(task.on_completed)](
                          CopyTask& ending, std::exception_ptr error, std::shared_ptr<CudaEvent> end) mutable {
    const auto note_end = [&] { posts->post([this, slot, end] { this->end(slot, end); }); };
    check_memory(ending, error);
    // Who has what was read finds the memory used no more; who waits for an upload finds its failure.
    if (ending.direction == CopyTask::Direction::ToHost) note_end();
    done(ending, std::move(error), end);
    ending.parts.clear();  // before anybody finds that it has ended: the bytes are given back
    if (ending.direction == CopyTask::Direction::ToDevice) note_end();
  };
  if (streams_.issued(waits)) {
    start(waits, std::move(task));
  } else {
    waiting_.push_back({waits, std::move(task)});
  }
  ++in_flight_;
  return {slot, streams_.timeline(slot).submit()};
}

// All that the copy comes behind has ended, and nothing that comes behind it has begun: the memory is as the copy has
// found it.
void CudaTransfers::check_memory(const CopyTask& task, std::exception_ptr& error) const noexcept {
  if (error == nullptr) error = task.memory.refusal(task.location);
  if (error == nullptr) return task.memory.set_succeeded();
  if (task.direction == CopyTask::Direction::ToDevice) error = failed_upload(error, task.location, task.memory.site());
  streams_.poison_log()->set_failed(task.memory.uses(), error, MemoryFailure::Contents::Undefined);
}

// On failure the task is as it was.
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

// It ends when what it was to wait for is over: others use its memory behind it.
void CudaTransfers::fail(Waiting transfer, const std::exception_ptr& error) noexcept {
  std::shared_ptr<CopyTask> task;
  try {
    task = std::make_shared<CopyTask>(std::move(transfer.task));
    streams_.when_complete(transfer.waits, [task, error] { task->on_completed(*task, error, nullptr); });
  } catch (...) {  // no memory to wait
    CopyTask& left = task != nullptr ? *task : transfer.task;
    left.on_completed(left, error, nullptr);
  }
}

void CudaTransfers::end(StreamSlot slot, std::shared_ptr<CudaEvent> event) {
  CudaTimeline& timeline = streams_.timeline(slot);
  timeline.end(timeline.submitted(), std::move(event));  // one at a time
  --in_flight_;
}

void CudaTransfers::abandon() noexcept {
  for (Waiting& waiting : waiting_)
    waiting.task.on_completed(waiting.task, gpu_fault_error(std::source_location::current()), nullptr);
  waiting_.clear();
}

}  // namespace cox::detail
