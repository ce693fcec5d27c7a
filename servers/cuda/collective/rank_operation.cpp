#include <coxswain/servers/cuda/collective/rank_operation.hpp>

#include <coxswain/device_handle/base/task_error.hpp>

#include <utility>

namespace cox::detail {

namespace {

// Not before all that had its turn up to there has been issued.
void end_in_turn(const RankContext& of, const StreamPosition& position, std::uint64_t behind,
                 const std::shared_ptr<CudaEvent>& event) noexcept {
  CudaTimeline& timeline = of.communication->streams.timeline(position.stream);
  CompletionOrder& turns = *of.communication->turns;
  if (turns.all_issued(behind)) return timeline.end(position.position, event);
  try {
    turns.when_issued(behind, [&timeline, at = position.position, event] { timeline.end(at, event); });
  } catch (...) {  // no memory to keep the order
    report_task_error({of.group->devices().devices()[of.rank], StreamId::current(), std::current_exception()});
    timeline.end(position.position, event);
  }
}

}  // namespace

// The error comes before the end: who waits for that finds it.
void RankOperation::end(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& event) noexcept {
  if (error != nullptr) fail(error);
  if (event == nullptr) return end_behind_waits();
  end_in_turn(*of, position, behind_, event);
}

void RankOperation::end_behind_waits() noexcept {
  try {
    of->communication->streams.when_complete(
        waits, [of = of, at = position, behind = behind_] { end_in_turn(*of, at, behind, nullptr); });
  } catch (...) {  // no memory to wait
    report_task_error({of->group->devices().devices()[of->rank], StreamId::current(), std::current_exception()});
    end_in_turn(*of, position, behind_, nullptr);
  }
}

RankOperation::RankOperation(std::shared_ptr<RankContext> whose) : of(std::move(whose)) {
  of->communication->turns->expect();
}

RankOperation::~RankOperation() {
  if (is_expected_) of->communication->turns->forget();
}

void RankOperation::retire() noexcept {
  const std::uint64_t turn = std::exchange(turn_, 0);
  if (turn == 0) return;
  of->communication->turns->issued(turn);
}

void RankOperation::refuse(const std::exception_ptr& refusal) noexcept {
  tell(refusal);
  end_behind_waits();
}

void RankOperation::fail(const std::exception_ptr& error) noexcept {
  if (failed_.exchange(true)) return;
  of->recorder->failed(sequence, of->rank, error);
  try {
    of->group->sequencer().abort(of->number, error);
  } catch (...) {
    report_task_error({of->group->devices().devices()[of->rank], StreamId::current(), std::current_exception()});
  }
  tell(error);
}

void RankOperation::tell(const std::exception_ptr& error) noexcept {
  asked_on->fail_at(error_sequence, error, reports);
  of->group->report_failure(error);
}

}  // namespace cox::detail
