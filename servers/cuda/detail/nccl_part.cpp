#include <coxswain/servers/cuda/detail/nccl_part.hpp>

#include <coxswain/collectives/nccl_clique.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/servers/cuda/detail/clique_devices.hpp>
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
    if (part == nullptr || part->over_) return;
    part->give_up(std::make_exception_ptr(
        CollectiveError(CollectiveError::Kind::Backend, "the driver could not be told what it waits for", part->site)));
  }
  void operator()(const IssueTarget& target) const { part->issue(target); }
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
  const auto operation = std::move(operation_);  // which will keep this part, to tell it of a failure
  try {
    of->recorder->started(sequence, of->rank);
    launch(*operation, target);
    note_launch(operation, target);
    over_ = true;
    leave_place();
    LaunchGate::of_process().remove_part();
  } catch (...) {
    give_up(std::current_exception());
  }
}

void NcclPart::launch(const NcclOperation& operation, const IssueTarget& target) {
  if (gpu_faulted()) throw_gpu_fault(site);
  const NcclClique::Launching launching = of->clique->launching(of->rank);
  if (operation.way == CliqueWay::Nccl) return of->clique->launch(launching, of->rank, calls, target.stream);
  std::uint32_t& launched = of->launched[static_cast<std::size_t>(operation.way)];
  const PeerKernels* const peers = static_cast<const CliqueDevices&>(launching.opened).peer_kernels();
  peers->launch(operation.way, of->rank, calls, launched, target.stream);
}

void NcclPart::note_launch(const std::shared_ptr<NcclOperation>& operation, const IssueTarget& target) {
  NcclLine& line = *of->communication->nccl;
  CudaStreams& streams = of->communication->streams;
  CudaTimeline& timeline = streams.timeline(position.stream);
  const std::shared_ptr<CudaEvent> event = target.queue->mark(streams.events());
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
    if (of->clique->broken() == nullptr) of->clique->abort(error);  // nobody would notice if it did not
  }
  end(error, event);
}

// The others wait for this rank, perhaps on their devices.
void NcclPart::give_up(const std::exception_ptr& error) noexcept {
  if (std::exchange(over_, true)) return;
  of->clique->abort(error);
  end(error, nullptr);
  leave_place();
  LaunchGate::of_process().remove_part();
}

void NcclLine::submit(const std::shared_ptr<NcclPart>& part) noexcept {
  try {
    if (stream_ == nullptr) stream_ = streams_.make_apart();
    streams_.submit(*stream_, part->waits, {nullptr, nullptr, part->site}, NcclPart::Turn(part));
  } catch (...) {
    part->give_up(std::current_exception());
  }
}

}  // namespace cox::detail
