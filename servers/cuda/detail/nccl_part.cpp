#include <coxswain/servers/cuda/detail/nccl_part.hpp>

#include <coxswain/collectives/nccl_clique.hpp>
#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/servers/cuda/detail/clique_devices.hpp>
#include <coxswain/servers/cuda/detail/cuda_try.hpp>
#include <coxswain/servers/cuda/detail/fault_report.hpp>
#include <coxswain/servers/cuda/detail/launch_gate.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace cox::detail {

/// Launches the part; or gives it up, if it is dropped without that.
struct NcclPart::Turn {
  std::shared_ptr<NcclPart> part;

  explicit Turn(std::shared_ptr<NcclPart> whose) noexcept : part(std::move(whose)) {}
  Turn(Turn&&) noexcept = default;
  Turn& operator=(Turn&&) = delete;
  ~Turn() {
    if (part == nullptr) return;
    part->give_up(std::make_exception_ptr(
        CollectiveError(CollectiveError::Kind::Backend, "the driver could not be told what it waits for", part->site)));
  }
  void operator()(const IssueTarget& target) { std::exchange(part, nullptr)->issue(target); }
};

void NcclPart::take_turn(std::shared_ptr<void> shared) {
  LaunchGate::of_process().add_part();
  take_place();
  operation_ = std::static_pointer_cast<NcclOperation>(std::move(shared));
  operation_->sequence.store(sequence, std::memory_order_relaxed);  // the same from all ranks
  of->communication->nccl->submit(shared_from_this());
}

// What the stream waits for has been issued.
void NcclPart::issue(const IssueTarget& target) noexcept {
  try {
    of->recorder->started(sequence, of->rank);
    if (gpu_faulted()) throw_gpu_fault(site);
    NcclClique::Launching launching = of->clique->launching(of->rank);
    opened_ = launching.opened;
    if (operation_->way != CliqueWay::Nccl) {
      launching.in_use.unlock();
      return launch_kernels(target);
    }
    of->clique->launch(launching, of->rank, calls, target.stream());
    launching.in_use.unlock();
    note_launch(target.queue->mark(of->communication->streams.events()));
  } catch (...) {
    fail_launch(std::current_exception());
  }
}

// The driver is given them with those of the parts that come behind, and says then what it makes of them.
void NcclPart::launch_kernels(const IssueTarget& target) {
  NativeStream& native = target.queue->native();
  event_ = of->communication->streams.events().take();
  queue_ = target.queue;
  issued_ = queue_->timeline().issued();
  issued_on_native_ = native.timeline().issued();
  const auto note = [part = shared_from_this()](CUresult result) { part->note_result(result); };
  std::uint32_t& launched = of->launched[static_cast<std::size_t>(operation_->way)];
  static_cast<const CliqueDevices&>(*opened_).peer_kernels()->launch(
      operation_->way, of->rank, calls, launched, [&](const KernelLaunch& kernel) { native.launch(kernel, note); });
  native.end_launch(event_->native(), [part = shared_from_this()](CUresult result) {
    part->note_result(result);
    part->end_launch();
  });
}

void NcclPart::note_result(CUresult result) noexcept {
  if (result_ == CUDA_SUCCESS) result_ = result;
}

void NcclPart::end_launch() noexcept {
  if (over_) return;  // not all of its kernels could be noted, and it was given up
  try {
    if (result_ != CUDA_SUCCESS) throw_cuda_error(result_, "launch", site);
    queue_->mark(issued_, issued_on_native_, event_);
    note_launch(event_);
  } catch (...) {
    fail_launch(std::current_exception());
  }
}

// Some of its kernels may run: they need their memory until they have ended.
void NcclPart::fail_launch(const std::exception_ptr& error) noexcept {
  try {
    if (queue_ != nullptr && opened_ != nullptr)
      queue_->mark(of->communication->streams.events())->notify([opened = std::move(opened_)] {});
  } catch (...) {
    report_task_error({of->group->devices().devices()[of->rank], StreamId::current(), std::current_exception()});
  }
  give_up(error);
}

// Its end is `event`, which has been recorded.
void NcclPart::note_launch(const std::shared_ptr<CudaEvent>& event) {
  const auto operation = std::move(operation_);  // which will keep this part, to tell it of a failure
  const auto opened = std::move(opened_);
  NcclLine& line = *of->communication->nccl;
  CudaStreams& streams = of->communication->streams;
  CudaTimeline& timeline = streams.timeline(position.stream);
  NcclOperation::Launched launched;
  line.awaited_.clear();
  if (line.last_end_ != nullptr) line.awaited_.push_back(line.last_end_);
  streams.add_events(waits, line.awaited_);
  for (const auto& awaited : line.awaited_) launched.behind.push_back(awaited);
  launched.end = event;
  launched.fail = [part = shared_from_this()](const std::exception_ptr& error) { part->fail(error); };
  line.last_end_ = event;
  if (timeline.in_flight() >= 64 && timeline.in_flight() % 32 == 0) timeline.poll();
  const std::uint64_t begin = position.position - sequence;  // the rank's n-th part ends there + n
  std::exception_ptr error;
  try {
    of->clique->add(operation, of->rank, std::move(launched), std::max(timeline.completed(), begin) - begin);
  } catch (...) {
    error = std::current_exception();  // given up meanwhile; what has been launched still has to end
    event->notify([opened] {});        // and has its memory until then
    if (of->clique->broken() == nullptr) of->clique->abort(error);  // nobody would notice if it did not
  }
  end(error, event);
  over_ = true;
  leave_place();
  LaunchGate::of_process().remove_part();
}

// The others wait for this rank, perhaps on their devices.
void NcclPart::give_up(const std::exception_ptr& error) noexcept {
  if (std::exchange(over_, true)) return;
  operation_ = nullptr;
  of->clique->abort(error);
  end(error, nullptr);
  leave_place();
  LaunchGate::of_process().remove_part();
}

// Nothing has the driver wait for parts that are on the stream before: several can be given it together.
void NcclLine::submit(const std::shared_ptr<NcclPart>& part) noexcept {
  try {
    if (stream_ == nullptr) stream_ = streams_.make_apart();
    StreamPositions others;
    for (const StreamPosition& wait : part->waits)
      if (wait.position > taken_of(wait.stream)) others.push_back(wait);
    part->waits = std::move(others);
    taken_of(part->position.stream) = part->position.position;
    streams_.submit(*stream_, part->waits, {nullptr, nullptr, part->site}, NcclPart::Turn(part));
  } catch (...) {
    part->give_up(std::current_exception());
  }
}

}  // namespace cox::detail
