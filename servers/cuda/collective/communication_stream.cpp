#include <coxswain/servers/cuda/collective/communication_stream.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/peer/cuda_nccl_resources.hpp>
#include <coxswain/servers/cuda/peer/launch_gate.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace cox::detail {

void NcclRankOperation::on_release(std::shared_ptr<void> shared) {
  LaunchGate::of_process().add_launch();
  reserve_slot();
  operation_ = std::static_pointer_cast<NcclOperation>(std::move(shared));
  // All ranks store the same value. Ranks after the first one only read it, since all ranks share the cache line.
  if (operation_->sequence.load(std::memory_order_relaxed) != sequence)
    operation_->sequence.store(sequence, std::memory_order_relaxed);
  context->communication->nccl->submit(shared_from_this());
}

// Called when everything that the part waits for has been issued.
void NcclRankOperation::issue(const std::shared_ptr<NcclRankOperation>& self, const IssueTarget& target) noexcept {
  CommunicationStream& line = *context->communication->nccl;
  try {
    context->recorder->started(sequence, context->rank);
    if (gpu_faulted()) throw_gpu_fault(site);
    admit(self);  // launched even if it reads poisoned memory: the other ranks may have launched
    NcclClique::LaunchLock launching = context->clique->begin_launch(context->rank);
    if (operation_->algorithm != CollectiveAlgorithm::Nccl) {
      launching.in_use.unlock();
      opened_ = std::move(launching.opened);
      return line.launch_kernels(self);
    }
    opened_ = launching.opened;
    context->clique->launch(launching, context->rank, calls, target.stream());
    launching.in_use.unlock();
    event_ = target.queue->mark(context->communication->streams.events());
    line.note({&self, 1});
  } catch (...) {
    fail_launch(std::current_exception());
  }
}

// Some kernels of the part may be running: their memory is kept until they have completed.
void NcclRankOperation::fail_launch(const std::exception_ptr& error) noexcept {
  if (is_launched_or_failed_) return;
  std::shared_ptr<CudaEvent> end;
  try {
    if (opened_ != nullptr) {
      end = context->communication->nccl->end_of_all();
      end->notify([opened = std::move(opened_)] {});
    }
  } catch (...) {
    report_task_error(
        {context->group->devices().devices()[context->rank], StreamId::current(), std::current_exception()});
  }
  abort(error, end);
}

std::exception_ptr NcclRankOperation::launch_failure() const noexcept {
  try {
    throw_cuda_error(result_, "launch", site);
  } catch (...) {
    return std::current_exception();
  }
}

// Aborts the clique as well: the other ranks wait for this one, possibly in kernels on their devices.
void NcclRankOperation::abort(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& end) noexcept {
  if (std::exchange(is_launched_or_failed_, true)) return;
  context->clique->abort(error);
  close(error, end);
}

// The part was launched and completes with `event`, or it has failed.
void NcclRankOperation::close(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& event) noexcept {
  is_launched_or_failed_ = true;
  operation_ = nullptr;
  opened_ = nullptr;
  complete(error, event);
  retire();
  LaunchGate::of_process().remove_launch();
}

// Waits for parts that precede this one on the stream are left out, so that several parts can be given to the driver
// together.
void CommunicationStream::submit(const std::shared_ptr<NcclRankOperation>& part) noexcept {
  try {
    open();
  } catch (...) {
    return part->abort(std::current_exception());
  }
  LaunchGuard turn(part, *stream_);
  try {
    for (const StreamPosition& wait : part->waits)
      if (wait.position > taken_of(wait.stream)) part->others_.push_back(wait);
    taken_of(part->position.stream) = part->position.position;
    streams_.submit(*stream_, part->others_, {nullptr, nullptr, part->site}, std::move(turn));
  } catch (...) {
    part->abort(std::current_exception());  // more specific than the error from the destructor of `turn`
  }
}

void CommunicationStream::open() {
  if (stream_ != nullptr) return;
  stream_ = streams_.create_dedicated_stream();
  stream_->queue().native().set_flush_callback([weak = weak_from_this()] {
    if (const auto line = weak.lock()) line->note_launched();
  });
}

// Adds the part's kernels to the launch batch, which the driver receives together with those of later parts. `note` is
// called with the driver's result then.
void CommunicationStream::launch_kernels(const std::shared_ptr<NcclRankOperation>& launched) {
  NcclRankOperation& part = *launched;
  StreamQueue& queue = stream_->queue();
  NativeStream& native = queue.native();
  unlaunched_.reserve(unlaunched_.size() + 1);
  const auto note = [&part](const LaunchBatch::Outcome& outcome) {
    if (part.result_ == CUDA_SUCCESS) part.result_ = outcome.result;
  };
  const PeerKernels& kernels = *static_cast<const CudaNcclResources&>(*part.opened_).peer_kernels();
  kernels.launch(part.operation_->algorithm, part.context->rank, part.calls,
                 part.context->launched[static_cast<std::size_t>(part.operation_->algorithm)],
                 {.counter = streams_.events().counter(), .value = counted_},
                 [&](const KernelLaunch& kernel) { native.launch(kernel, note); });
  part.count_ = ++counted_;
  unlaunched_.push_back(launched);
  last_unlaunched_ = {queue.timeline().issued(), native.timeline().issued()};
}

// Only the last part gets an event. Each other part completes when the kernel of the next part begins, which sets the
// counter: an event for each part would cost more than its kernel.
void CommunicationStream::note_launched() noexcept {
  if (unlaunched_.empty()) return;
  std::vector<std::shared_ptr<NcclRankOperation>> parts = std::exchange(unlaunched_, std::exchange(noted_, {}));
  try {
    StreamQueue& queue = stream_->queue();
    CudaEvents& events = streams_.events();
    const std::shared_ptr<CudaEvent> end = events.record(queue.native().native());
    queue.mark(last_unlaunched_.issued, last_unlaunched_.issued_on_native, end);
    const bool all_count = std::ranges::all_of(parts, [](const auto& part) { return part->result_ == CUDA_SUCCESS; });
    for (const auto& part : parts)
      part->event_ = all_count && part != parts.back() ? events.make_counted(end, part->count_) : end;
    for (std::span<const std::shared_ptr<NcclRankOperation>> left(parts); !left.empty();) {
      const auto other = std::ranges::find_if(left, [&](const auto& part) {
        return part->context != left.front()->context || part->result_ != CUDA_SUCCESS;
      });
      const auto alike = static_cast<std::size_t>(other - left.begin());
      if (alike == 0) {
        left.front()->fail_launch(left.front()->launch_failure());
      } else {
        note(left.first(alike));
      }
      left = left.subspan(std::max<std::size_t>(alike, 1));
    }
  } catch (...) {
    for (const auto& part : parts) part->fail_launch(std::current_exception());
  }
  parts.clear();
  noted_ = std::move(parts);
}

// `parts`: launched parts of one rank, with their completion events.
void CommunicationStream::note(std::span<const std::shared_ptr<NcclRankOperation>> parts) {
  NcclRankOperation& last = *parts.back();
  const RankContext& context = *last.context;
  CudaTimeline& timeline = streams_.timeline(last.position.stream);
  if (timeline.in_flight() >= 64 && timeline.in_flight() % 32 < parts.size()) timeline.poll();
  streams_.poison_log()->trim(streams_);
  launched_.clear();
  for (const auto& part : parts) {
    NcclOperation::Launched launched{.dependencies = {}, .completion = part->event_, .waiter = part};
    awaited_.clear();
    if (last_end_ != nullptr && last_communicator_ != context.number) awaited_.push_back(last_end_);
    streams_.add_events(part->others_, awaited_);
    for (const auto& awaited : awaited_) launched.dependencies.push_back(awaited);
    last_communicator_ = context.number;
    launched_.push_back({part->operation_, std::move(launched)});
  }
  last_end_ = last.event_;
  const std::uint64_t begin = last.position.position - last.sequence;  // the rank's n-th part completes at begin + n
  std::exception_ptr error;
  try {
    context.clique->add(context.rank, launched_, std::max(timeline.completed(), begin) - begin);
  } catch (...) {
    error = std::current_exception();                 // the clique was aborted; launched work still has to complete
    last.event_->notify([opened = last.opened_] {});  // and keeps its memory until then
    context.clique->abort(error);                     // the parts are not watched: nothing would detect a hang
  }
  launched_.clear();
  awaited_.clear();
  for (const auto& part : parts) part->close(error, part->event_);
}

std::shared_ptr<CudaEvent> CommunicationStream::end_of_all() { return stream_->queue().mark(streams_.events()); }

}  // namespace cox::detail
