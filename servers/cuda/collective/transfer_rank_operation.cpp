#include <coxswain/servers/cuda/collective/transfer_rank_operation.hpp>

#include <coxswain/servers/cuda/driver/fault_report.hpp>

#include <cstdint>
#include <utility>

namespace cox::detail {
namespace {

// Limit of copies of one communicator in flight.
constexpr std::uint64_t most_in_flight = 256;

}  // namespace

void TransferRankOperation::on_submitted() noexcept {
  try {
    if (ready) check_source();
  } catch (...) {  // no memory to record it: the transfer is refused
    refusal_ = rank_failed(std::current_exception());
  }
}

// Checks the sender's memory for poison. Everything that writes it before has been issued. Device thread.
void TransferRankOperation::check_source() {
  PoisonLog& log = poison_log();
  if (place != 0 || log.is_quiet()) return;
  log.trim(context->communication->streams);
  if (const auto refusal = memory.refusal(origin_stream->location())) {
    refusal_ = rank_failed(refusal);
  } else if (log.depends_on_collective(memory)) {
    admit(shared_from_this());
    may_fail_ = true;
  }
}

// If everything that the rank waits for has been issued, the device thread is not woken before the transfer completes.
void TransferRankOperation::on_release(std::shared_ptr<void> shared) {
  peer_copy_ = std::static_pointer_cast<PeerCopy>(std::move(shared));
  if (place == 0) context->communication->copies->add(peer_copy_);
  if (ready) {
    skip_slot();
    return arrive(std::move(*ready), nullptr);
  }
  reserve_slot();
  context->communication->posts->post([part = shared_from_this()] { part->wait_for_issue(); });
}

// Device thread. Queues the part on the transfer stream; issue() is called when the driver can wait for everything that
// the rank waits for.
void TransferRankOperation::wait_for_issue() {
  CudaStream& stream = *context->communication->stream;
  LaunchGuard turn(shared_from_this(), stream);
  try {
    context->communication->streams.submit(stream, waits, {nullptr, nullptr, site}, std::move(turn), room());
  } catch (...) {
    abort(std::current_exception());  // more specific than the error from the destructor of `turn`
  }
}

// Arrives with an error, since the other side waits for this one. Idempotent.
void TransferRankOperation::abort(const std::exception_ptr& error) noexcept {
  try {
    arrive({}, error);
  } catch (...) {
    fail(std::current_exception());
  }
  retire();
}

// Called when everything that the rank waits for has been issued.
void TransferRankOperation::issue(const std::shared_ptr<TransferRankOperation>&, const IssueTarget& target) {
  std::vector<std::shared_ptr<CudaEvent>> behind;
  std::exception_ptr failure;
  try {
    if (gpu_faulted()) throw_gpu_fault(site);
    behind.push_back(target.queue->mark(context->communication->streams.events()));
    check_source();
  } catch (...) {
    failure = std::current_exception();
  }
  arrive(std::move(behind), failure);
  retire();
}

// The event that must be reached before another copy is issued; null if there is room.
std::shared_ptr<CudaEvent> TransferRankOperation::room() const {
  CudaTimeline& timeline = context->communication->streams.timeline(position.stream);
  if (has_room(timeline)) return nullptr;
  return timeline.covering(timeline.completed() + most_in_flight / 2)->event;
}

bool TransferRankOperation::has_room(CudaTimeline& timeline) noexcept {
  if (timeline.in_flight() >= most_in_flight / 2) timeline.poll();
  return timeline.in_flight() < most_in_flight;
}

void TransferRankOperation::arrive(std::vector<std::shared_ptr<CudaEvent>> behind, std::exception_ptr failure) {
  if (std::exchange(has_arrived_, true)) return;
  context->recorder->started(sequence, context->rank);
  const auto at = std::exchange(peer_copy_, nullptr);  // moved out, since the copy will refer to this part
  at->arrive(place, {.ranges = std::move(ranges),
                     .ready = std::move(behind),
                     .stream = place == 0 ? context->communication->copies : nullptr,
                     .events = &context->communication->streams.events(),
                     .failure = std::move(failure),
                     .refusal = refusal_,
                     .may_fail = may_fail_,
                     .on_completed = [part = shared_from_this()](const PeerCopy::End& end) {
                       if (end.event != nullptr && end.error == nullptr)
                         end.event->notify_lazily([owner = part->context, sequence = part->sequence] {
                           owner->recorder->completed(sequence, owner->rank);
                         });
                       part->context->communication->posts->post([part, end] { part->finish(end); });
                     }});
}

// Device thread. No work that waits for the transfer has been issued yet.
void TransferRankOperation::finish(const PeerCopy::End& end) noexcept {
  if (end.error != nullptr && end.is_refused) {
    context->recorder->failed(sequence, context->rank, end.error);
    return refuse(end.error);
  }
  std::exception_ptr error = end.error;
  try {
    if (place == 1 && error == nullptr) note_received(end);
  } catch (...) {  // no memory to record it: the transfer counts as failed
    error = std::current_exception();
  }
  complete(error, end.event);
}

void TransferRankOperation::note_received(const PeerCopy::End& end) {
  if (end.may_fail) return admit(shared_from_this());
  if (!poison_log().is_quiet())
    static_cast<void>(poison_log().admit(shared_from_this(), origin_stream->location().stream));  // it reads nothing
}

}  // namespace cox::detail
