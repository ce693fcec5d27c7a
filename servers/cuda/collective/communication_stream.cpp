#include <coxswain/servers/cuda/collective/communication_stream.hpp>

#include <coxswain/collectives/nccl/nccl_exchange.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/servers/cuda/collective/cuda_rank.hpp>
#include <coxswain/servers/cuda/collective/stream_hold.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/peer/cuda_nccl_resources.hpp>
#include <coxswain/servers/cuda/peer/launch_gate.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

namespace cox::detail {

void CudaCollectiveLaunch::on_release(std::shared_ptr<void> shared) {
  LaunchGate::of_process().add_launch();
  reserve_slot();
  operation = std::static_pointer_cast<NcclOperation>(std::move(shared));
  // All ranks store the same value. Ranks after the first one only read it, since all ranks share the cache line.
  if (operation->sequence.load(std::memory_order_relaxed) != sequence)
    operation->sequence.store(sequence, std::memory_order_relaxed);
  if (!rank->resources().posted->empty()) [[unlikely]]
    return post_in_order();
  on_posted();
}

void CudaCollectiveLaunch::on_posted() noexcept {
  rank->resources().communication_stream->submit(shared_as<CudaCollectiveLaunch>());
}

// Called when everything that the launch waits for has been issued.
void CudaCollectiveLaunch::issue(const IssueTarget& target) noexcept {
  const CudaRank& own = *rank;
  CommunicationStream& stream = *own.resources().communication_stream;
  try {
    own.recorder()->started(sequence, own.rank());
    if (gpu_faulted()) throw_gpu_fault(site);
    rank->poison_refused_until(position.position);
    // Launched even if it reads poisoned memory, since the other ranks may have launched. But it does not begin before
    // the other processes have marked the operation as failed: it cannot complete there before it has begun here.
    MarkScope marks;
    // If the driver refuses a launch of the same batch, what this reads may be poisoned, which admit() must find.
    if (own.shared() && stream.has_unlaunched_of_others(own)) target.flush_launches();
    admit();
    if (own.shared() && reads_poison()) {
      const std::shared_ptr<StreamHold>& hold = own.hold();
      const std::uint32_t number = hold->enqueue(target.stream());
      marks.when_noted([hold, number] { hold->open(number); });
    }
    NcclCommunicator::LaunchLock launching = own.nccl_communicator()->begin_launch(own.nccl_rank());
    const auto self = shared_as<CudaCollectiveLaunch>();
    if (operation->algorithm != CollectiveAlgorithm::Nccl) {
      launching.in_use.unlock();
      opened = std::move(launching.opened);
      return stream.launch_kernels(self);
    }
    opened = launching.opened;
    own.nccl_communicator()->launch(launching, own.nccl_rank(), calls, target.stream());
    launching.in_use.unlock();
    event = target.queue->mark(own.resources().streams.events());
    stream.note({&self, 1});
  } catch (...) {
    fail_launch(std::current_exception());
  }
}

// Some kernels of the launch may be running: their memory is kept until they have completed.
void CudaCollectiveLaunch::fail_launch(const std::exception_ptr& error) noexcept {
  if (is_launched_or_failed_) return;
  std::shared_ptr<CudaEvent> end;
  try {
    if (opened != nullptr) {
      end = rank->resources().communication_stream->end_of_all();
      end->notify([resources = std::move(opened)] {});
    }
  } catch (...) {
    report_task_error({rank->device(), StreamId::current(), std::current_exception()});
  }
  abort_after(error, end);
}

std::exception_ptr CudaCollectiveLaunch::launch_failure() const noexcept {
  try {
    throw_cuda_error(result, "launch", site);
  } catch (...) {
    return std::current_exception();
  }
}

void CudaCollectiveLaunch::abort_after(const std::exception_ptr& error,
                                       const std::shared_ptr<CudaEvent>& end) noexcept {
  if (std::exchange(is_launched_or_failed_, true)) return;
  rank->nccl_communicator()->abort(error);
  close(error, end);
}

void CudaCollectiveLaunch::close(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& end) noexcept {
  is_launched_or_failed_ = true;
  operation = nullptr;
  opened = nullptr;
  complete(error, end);
  retire();
  LaunchGate::of_process().remove_launch();
}

// Waits for launches that precede this one on the stream are left out, so that several launches can be given to the
// driver together.
void CommunicationStream::submit(const Launch& launch) noexcept {
  try {
    open();
    for (const StreamPosition& wait : launch->waits)
      if (wait.position > taken_of(wait.stream)) launch->others.push_back(wait);
    taken_of(launch->position.stream) = launch->position.position;
  } catch (...) {
    return launch->abort(std::current_exception());
  }
  launch->queue(*stream_);
}

void CommunicationStream::open() {
  if (stream_ != nullptr) return;
  stream_ = streams_.create_dedicated_stream();
  stream_->queue().native().set_flush_callback([weak = weak_from_this()] {
    if (const auto stream = weak.lock()) stream->note_launched();
  });
}

// Those of the rank itself need not be given to the driver first: the same kernels of the other processes wait for
// them.
bool CommunicationStream::has_unlaunched_of_others(const CudaRank& rank) const noexcept {
  return std::ranges::any_of(unlaunched_, [&](const Launch& launch) { return launch->rank.get() != &rank; });
}

// `note` is called with the driver's result when the batch is given to the driver.
void CommunicationStream::launch_kernels(const Launch& launched) {
  CudaCollectiveLaunch& launch = *launched;
  StreamQueue& queue = stream_->queue();
  NativeStream& native = queue.native();
  unlaunched_.reserve(unlaunched_.size() + 1);
  noted_.reserve(1);  // note_launched() takes it for `unlaunched_`, if kernels are given to the driver below
  const auto note = [&launch](const LaunchBatch::Outcome& outcome) {
    if (launch.result == CUDA_SUCCESS) launch.result = outcome.result;
  };
  const PeerKernels& kernels = *static_cast<const CudaNcclResources&>(*launch.opened).peer_kernels();
  const CollectiveAlgorithm algorithm = launch.operation->algorithm;
  struct Reset {
    ~Reset() { next = nullptr; }
    const CudaCollectiveLaunch*& next;
  } const reset{next_};
  kernels.launch(algorithm, launch.rank->rank(), launch.calls, launch.rank->kernel_count(algorithm),
                 {.counter = streams_.events().counter(), .value = counted_}, [&](const KernelLaunch& kernel) {
                   native.add_launch(kernel, note);
                   next_ = &launch;
                 });
  launch.count = ++counted_;
  unlaunched_.push_back(launched);
  last_unlaunched_ = {queue.timeline().issued(), native.timeline().issued()};
}

// Only the last launch gets an event. Each other one completes when the kernel of the next one begins, which sets the
// counter: an event for each would cost more than its kernel. So does the last one if the first kernels of a further
// launch were given to the driver with it: those may wait for what waits for this one.
void CommunicationStream::note_launched() noexcept {
  if (unlaunched_.empty()) return;
  std::vector<Launch> launches = std::exchange(unlaunched_, std::exchange(noted_, {}));
  const auto succeeded = [](const Launch& launch) { return launch->result == CUDA_SUCCESS; };
  try {
    StreamQueue& queue = stream_->queue();
    CudaEvents& events = streams_.events();
    const std::shared_ptr<CudaEvent> end = events.record(queue.native().native());
    queue.mark(last_unlaunched_.issued, last_unlaunched_.issued_on_native, end);
    const bool all_count = std::ranges::all_of(launches, succeeded);
    const bool has_next = next_ != nullptr && next_->result == CUDA_SUCCESS;
    for (const Launch& launch : launches)
      launch->event =
          all_count && (has_next || launch != launches.back()) ? events.make_counted(end, launch->count) : end;
    for (std::span<const Launch> left(launches); !left.empty();) {
      const auto other = std::ranges::find_if(
          left, [&](const Launch& launch) { return launch->rank != left.front()->rank || !succeeded(launch); });
      const auto alike = static_cast<std::size_t>(other - left.begin());
      if (alike == 0) {
        left.front()->fail_launch(left.front()->launch_failure());
      } else {
        note(left.first(alike));
      }
      left = left.subspan(std::max<std::size_t>(alike, 1));
    }
  } catch (...) {
    for (const Launch& launch : launches) launch->fail_launch(std::current_exception());
  }
  launches.clear();
  noted_ = std::move(launches);
}

void CommunicationStream::note(std::span<const Launch> launches) {
  CudaCollectiveLaunch& last = *launches.back();
  const CudaRank& rank = *last.rank;
  CudaTimeline& timeline = streams_.timeline(last.position.stream);
  if (timeline.in_flight() >= 64 && timeline.in_flight() % 32 < launches.size()) timeline.poll();
  streams_.poison_log()->trim(streams_);
  std::vector<std::shared_ptr<NcclLaunch>> launched = std::exchange(launched_, {});
  for (const Launch& launch : launches) {
    launch->completion = launch->event;
    awaited_.clear();
    if (last_end_ != nullptr && last_communicator_ != rank.number()) awaited_.push_back(last_end_);
    streams_.add_events(launch->others, awaited_);
    for (const auto& awaited : awaited_) launch->dependencies.push_back(awaited);
    last_communicator_ = rank.number();
    launched.push_back(launch);
  }
  last_end_ = last.event;
  const std::uint64_t begin = last.position.position - last.sequence;  // the rank's n-th launch completes at begin + n
  std::exception_ptr error;
  try {
    rank.nccl_communicator()->add(rank.lane(), rank.lane_rank(), launched,
                                  std::max(timeline.completed(), begin) - begin);
  } catch (...) {
    error = std::current_exception();               // NCCL was aborted; launched work still has to complete
    last.event->notify([opened = last.opened] {});  // and keeps its memory until then
    rank.nccl_communicator()->abort(error);         // the launches are not watched: nothing would detect a hang
  }
  launched.clear();
  launched_ = std::move(launched);
  awaited_.clear();
  for (const Launch& launch : launches) launch->close(error, launch->event);
}

std::shared_ptr<CudaEvent> CommunicationStream::end_of_all() { return stream_->queue().mark(streams_.events()); }

}  // namespace cox::detail
