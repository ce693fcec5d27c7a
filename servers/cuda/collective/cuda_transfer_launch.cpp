#include <coxswain/servers/cuda/collective/cuda_transfer_launch.hpp>

#include <coxswain/servers/cuda/collective/cuda_rank.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>

#include <cstdint>
#include <utility>

namespace cox::detail {
namespace {

// Limit of copies of one communicator in flight.
constexpr std::uint64_t most_in_flight = 256;

}  // namespace

void CudaTransferLaunch::check_ready() noexcept {
  try {
    if (ready) check_source();
  } catch (...) {  // no memory to record it: the transfer is refused
    source_refusal_ = rank_failed(std::current_exception());
  }
}

// Checks the sender's memory for poison. Everything that writes it before has been issued. Device thread.
void CudaTransferLaunch::check_source() {
  PoisonLog& log = poison_log();
  if (place != 0 || log.is_quiet()) return;
  log.trim(rank->resources().streams);
  if (const auto refusal = memory.refusal(origin_stream->location())) {
    source_refusal_ = rank_failed(refusal);
  } else if (log.depends_on_collective(memory)) {
    admit();
    may_fail_ = true;
  }
}

// If everything that the rank waits for has been issued, the device thread is not woken before the transfer completes.
// Otherwise the device thread queues the launch on the transfer stream.
void CudaTransferLaunch::on_release(std::shared_ptr<void> operation) {
  const CollectiveResources& resources = rank->resources();
  peer_copy_ = std::static_pointer_cast<PeerCopy>(std::move(operation));
  if (place == 0) resources.copy_stream->add(peer_copy_);
  if (ready) {
    skip_slot();
    return arrive(std::move(*ready), nullptr);
  }
  reserve_slot();
  post();
}

void CudaTransferLaunch::on_posted() noexcept {
  if (end_) return finish();
  queue_on(*rank->resources().transfer_stream, waits, room());
}

// Arrives with an error, since the other side waits for this one. Idempotent.
void CudaTransferLaunch::abort(const std::exception_ptr& error) noexcept {
  try {
    arrive({}, error);
  } catch (...) {
    complete(std::current_exception(), nullptr);
  }
  retire();
}

// Called when everything that the rank waits for has been issued.
void CudaTransferLaunch::issue(const IssueTarget& target) {
  std::vector<std::shared_ptr<CudaEvent>> behind;
  std::exception_ptr failure;
  try {
    if (gpu_faulted()) throw_gpu_fault(site);
    behind.push_back(target.queue->mark(rank->resources().streams.events()));
    check_source();
  } catch (...) {
    failure = std::current_exception();
  }
  arrive(std::move(behind), failure);
  retire();
}

// The event that must be reached before another copy is issued; null if there is room.
std::shared_ptr<CudaEvent> CudaTransferLaunch::room() const {
  CudaTimeline& timeline = rank->resources().streams.timeline(position.stream);
  if (has_room(timeline)) return nullptr;
  return timeline.covering(timeline.completed() + most_in_flight / 2)->event;
}

bool CudaTransferLaunch::has_room(CudaTimeline& timeline) noexcept {
  if (timeline.in_flight() >= most_in_flight / 2) timeline.poll();
  return timeline.in_flight() < most_in_flight;
}

void CudaTransferLaunch::arrive(std::vector<std::shared_ptr<CudaEvent>> behind, std::exception_ptr failure) {
  if (std::exchange(has_arrived_, true)) return;
  rank->recorder()->started(sequence, rank->rank());
  const auto at = std::exchange(peer_copy_, nullptr);  // moved out, since the copy will refer to this launch
  at->arrive(place, {.ranges = std::move(ranges),
                     .ready = std::move(behind),
                     .stream = place == 0 ? rank->resources().copy_stream : nullptr,
                     .events = &rank->resources().streams.events(),
                     .failure = std::move(failure),
                     .refusal = source_refusal_,
                     .may_fail = may_fail_,
                     .on_completed = [self = shared_as<CudaTransferLaunch>()](const PeerCopy::End& end) {
                       self->end_ = end;
                       self->record_completion();
                       self->post();
                     }});
}

// For the flight recorder alone. Any thread.
void CudaTransferLaunch::record_completion() const noexcept {
  if (end_->event == nullptr || end_->error != nullptr) return;
  try {
    end_->event->notify_lazily([of = rank, sequence = sequence] { of->recorder()->completed(sequence, of->rank()); });
  } catch (...) {  // no memory, or no thread to poll: the recorder shows the transfer as started
  }
}

// Device thread. No work that waits for the transfer has been issued yet.
void CudaTransferLaunch::finish() noexcept {
  const PeerCopy::End end = std::move(*end_);
  rank->poison_refused_until(position.position);
  if (end.error != nullptr && end.is_refused) {
    rank->recorder()->failed(sequence, rank->rank(), end.error);
    return refuse(end.error);
  }
  std::exception_ptr error = end.error;
  try {
    if (place == 1 && error == nullptr) note_received(end.may_fail);
  } catch (...) {  // no memory to record it: the transfer counts as failed
    error = std::current_exception();
  }
  complete(error, end.event);
}

void CudaTransferLaunch::note_received(bool may_fail) {
  if (may_fail) return admit();
  if (!poison_log().is_quiet())
    static_cast<void>(poison_log().admit(shared_from_this(), origin_stream->location().stream));  // it reads nothing
}

}  // namespace cox::detail
