#include <coxswain/servers/cuda/collective/rank_operation.hpp>

#include <coxswain/device_handle/base/task_error.hpp>

#include <utility>

namespace cox::detail {

namespace {

// Ends `position` with `event`, but not before all turns up to `behind` have been issued.
void complete_in_order(const RankContext& context, const StreamPosition& position, std::uint64_t behind,
                       const std::shared_ptr<CudaEvent>& event) noexcept {
  CudaTimeline& timeline = context.communication->streams.timeline(position.stream);
  CompletionOrder& turns = *context.communication->turns;
  if (turns.all_issued(behind)) return timeline.end(position.position, event);
  try {
    turns.when_issued(behind, [&timeline, at = position.position, event] { timeline.end(at, event); });
  } catch (...) {  // no memory to keep the order
    report_task_error({context.device, StreamId::current(), std::current_exception()});
    timeline.end(position.position, event);
  }
}

}  // namespace

// The error is recorded before the completion, so that a thread which waits for the completion finds the error.
void RankOperation::complete(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& event) noexcept {
  if (error != nullptr) fail(error);
  if (event == nullptr) return complete_after_waits(error);
  if (error != nullptr && !is_logged_)
    poison_log().set_failed(memory.uses(), error, MemoryFailure::Contents::Undefined);
  complete_in_order(*context, position, behind_, event);
}

// Earlier work may not have been issued yet and must find the memory unchanged, so the memory is poisoned only after
// that. Later work finds it poisoned.
void RankOperation::complete_after_waits(const std::exception_ptr& error) noexcept {
  try {
    context->communication->streams.when_complete(
        waits, [owner = context, at = position, behind = behind_, error, self = shared_self()] {
          if (error != nullptr)
            owner->communication->streams.poison_log()->set_failed(self->memory.uses(), error,
                                                                   MemoryFailure::Contents::Unchanged);
          complete_in_order(*owner, at, behind, nullptr);
        });
  } catch (...) {  // no memory to wait
    if (error != nullptr) poison_log().set_failed(memory.uses(), error, MemoryFailure::Contents::Unchanged);
    report_task_error({context->device, StreamId::current(), std::current_exception()});
    complete_in_order(*context, position, behind_, nullptr);
  }
}

RankOperation::RankOperation(std::shared_ptr<RankContext> whose) : context(std::move(whose)) {
  context->communication->turns->reserve();
}

RankOperation::~RankOperation() {
  if (is_expected_) context->communication->turns->cancel();
}

void RankOperation::retire() noexcept {
  const std::uint64_t turn = std::exchange(turn_, 0);
  if (turn == 0) return;
  context->communication->turns->issued(turn);
}

void RankOperation::refuse(const std::exception_ptr& refusal) noexcept {
  record_rank_failure(refusal);
  report_rank_failure(refusal);
  // If all earlier work has been issued, poison at once: the next operation of the communicator does not wait for the
  // completion of this one.
  if (!context->communication->streams.issued(waits)) return complete_after_waits(refusal);
  poison_log().set_failed(memory.uses(), refusal, MemoryFailure::Contents::Unchanged);
  complete_after_waits(nullptr);
}

void RankOperation::fail(const std::exception_ptr& error) noexcept {
  if (failed_.exchange(true)) return;
  bool is_first = true;  // a refusal may have been reported before
  if (is_logged_) {
    is_first = poison_log().fail(*this, error);
  } else {
    record_rank_failure(error);
  }
  context->recorder->failed(sequence, context->rank, error);
  try {
    context->group->sequencer().abort(context->number, error);
  } catch (...) {
    report_task_error({context->device, StreamId::current(), std::current_exception()});
  }
  if (is_first) report_rank_failure(error);
}

void RankOperation::admit(std::shared_ptr<LoggedOperation> self) {
  is_logged_ = true;
  try {
    poison_log().admit_part(std::move(self), position, {context->number, sequence}, origin_stream->location().stream);
  } catch (...) {
    is_logged_ = false;
    throw;
  }
}

std::exception_ptr RankOperation::rank_failed(const std::exception_ptr& refusal) const noexcept {
  try {
    return std::make_exception_ptr(CollectiveError(
        CollectiveError::Kind::RankFailed,
        name() + " is not done: " + context->device.to_string() + " could not take part: " + describe_cause(refusal),
        site, refusal));
  } catch (...) {
    return std::current_exception();  // no memory for the message
  }
}

std::exception_ptr RankOperation::record_refusal(const std::exception_ptr& refusal) noexcept {
  std::exception_ptr error = PoisonLog::first_failure({context->number, sequence}, rank_failed(refusal));
  record_rank_failure(error);
  return error;
}

void RankOperation::report_refusal(const std::exception_ptr& error) noexcept {
  report_rank_failure(error);
  PoisonLog::fail_collective({context->number, sequence}, error, context->devices.devices());
}

void RankOperation::record_rank_failure(const std::exception_ptr& error) noexcept {
  origin_stream->record_failure_at(error_sequence, error, reports);
}

void RankOperation::report_rank_failure(const std::exception_ptr& error) noexcept {
  origin_stream->report_failure(error);
  context->group->report_failure(error);
}

}  // namespace cox::detail
