#include <coxswain/servers/cuda/collective/cuda_rank_launch.hpp>

#include <coxswain/collectives/nccl/nccl_exchange.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/world_process.hpp>
#include <coxswain/servers/cuda/collective/cuda_rank.hpp>

#include <utility>

namespace cox::detail {

namespace {

// Ends the position of the launch with `event`. What then counts as issued and was refused poisons its memory: work
// that waits for these positions is issued after this.
void end(CudaRank& rank, std::uint64_t position, const std::shared_ptr<CudaEvent>& event) noexcept {
  CudaTimeline& timeline = rank.resources().streams.timeline(rank.last_position().stream);
  timeline.end(position, event);
  rank.poison_refused_until(timeline.issued());
}

// The same, but not before all turns up to `behind` have been issued.
void end_in_order(const std::shared_ptr<CudaRank>& rank, std::uint64_t position, std::uint64_t behind,
                  const std::shared_ptr<CudaEvent>& event) noexcept {
  CompletionOrder& order = *rank->resources().completion_order;
  if (order.all_issued(behind)) return end(*rank, position, event);
  try {
    order.when_issued(behind, [rank, position, event] { end(*rank, position, event); });
  } catch (...) {  // no memory to keep the order
    report_task_error({rank->device(), StreamId::current(), std::current_exception()});
    end(*rank, position, event);
  }
}

}  // namespace

/// The task that issues a launch on `stream`. If it is destroyed without having been called, it aborts the launch with
/// what was recorded for `stream` before.
class CudaRankLaunch::Guard {
 public:
  Guard(std::shared_ptr<CudaRankLaunch> launch, CudaStream& stream) noexcept
      : launch_(std::move(launch)), stream_(&stream) {}
  Guard(Guard&&) noexcept = default;
  Guard& operator=(Guard&&) = delete;
  ~Guard() {
    if (launch_ != nullptr) launch_->abort(why());
  }
  void operator()(const IssueTarget& target) {
    const std::shared_ptr<CudaRankLaunch> launch = std::exchange(launch_, nullptr);
    launch->issue(target);
  }

 private:
  // The stream is an internal one, for collectives or transfers: no other code takes its errors.
  [[nodiscard]] std::exception_ptr why() const noexcept {
    try {
      if (auto error = stream_->remove_errors_between(0, ~std::uint64_t{0})) return error;
      return std::make_exception_ptr(
          CollectiveError(CollectiveError::Kind::Backend, "no host memory to issue the operation", launch_->site));
    } catch (...) {
      return std::current_exception();
    }
  }

  std::shared_ptr<CudaRankLaunch> launch_;
  CudaStream* stream_;  // kept alive by the launch
};

CudaRankLaunch::CudaRankLaunch(std::shared_ptr<CudaRank> of) : rank(std::move(of)) {
  rank->resources().completion_order->reserve();
}

CudaRankLaunch::~CudaRankLaunch() {
  if (is_expected_) rank->resources().completion_order->cancel();
}

void CudaRankLaunch::take_grant(LaunchGrant&& grant) {
  if (grant.refusal == nullptr) return on_release(std::move(grant.operation));
  refusal_ = std::move(grant.refusal);
  if (rank->nccl_communicator() == nullptr) return post();
  post_in_order();
}

void CudaRankLaunch::post() noexcept { rank->resources().posts->post(shared_from_this()); }

void CudaRankLaunch::post_in_order() noexcept {
  is_posted_in_order_ = true;
  rank->resources().posted->add();
  post();
}

void CudaRankLaunch::run_posted() noexcept {
  if (refusal_ != nullptr) {
    rank->note_refused(sequence);
    refuse(refusal_);
  } else {
    on_posted();
  }
  if (std::exchange(is_posted_in_order_, false)) rank->resources().posted->remove();
}

void CudaRankLaunch::set_origin(CudaStream& stream, std::source_location from) {
  position = rank->next_position();
  sequence = rank->operation_at(position.position).sequence;
  origin_stream = stream.shared_from_this();
  error_sequence = stream.next_sequence();
  reports = stream.reports;
  site = from;
}

void CudaRankLaunch::queue_on(CudaStream& stream, const StreamPositions& waits_for,
                              const std::shared_ptr<CudaEvent>& room) noexcept {
  Guard guard(shared_from_this(), stream);
  try {
    rank->resources().streams.submit(stream, waits_for, {nullptr, nullptr, site}, std::move(guard), room);
  } catch (...) {
    abort(std::current_exception());  // more specific than the error from the destructor of `guard`
  }
}

// The error is recorded before the completion, so that a thread which waits for the completion finds the error.
void CudaRankLaunch::complete(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& event) noexcept {
  if (error != nullptr) fail(error);
  if (event == nullptr) return complete_after_waits(error);
  if (error != nullptr && !is_logged_)
    poison_log().set_failed(memory.uses(), error, MemoryFailure::Contents::Undefined);
  end_in_order(rank, position.position, behind_, event);
}

void CudaRankLaunch::complete_after_waits(const std::exception_ptr& error) noexcept {
  if (error != nullptr) poison_in_order(error);
  try {
    rank->resources().streams.when_complete(waits, [self = shared_from_this()] {
      end_in_order(self->rank, self->position.position, self->behind_, nullptr);
    });
  } catch (...) {  // no memory to wait
    report_task_error({rank->device(), StreamId::current(), std::current_exception()});
    end_in_order(rank, position.position, behind_, nullptr);
  }
}

void CudaRankLaunch::poison_in_order(const std::exception_ptr& error) noexcept {
  const auto poison = [error, self = shared_from_this()] {
    self->poison_log().set_failed(self->memory.uses(), error, MemoryFailure::Contents::Unchanged);
  };
  try {
    rank->add_refused(position.position, poison);
  } catch (...) {  // no memory to wait for its turn
    poison();
  }
}

void CudaRankLaunch::reserve_slot() noexcept {
  turn_ = rank->resources().completion_order->take();
  is_expected_ = false;
  behind_ = turn_ - 1;
}

void CudaRankLaunch::skip_slot() noexcept { behind_ = rank->resources().completion_order->last(); }

void CudaRankLaunch::retire() noexcept {
  const std::uint64_t turn = std::exchange(turn_, 0);
  if (turn == 0) return;
  rank->resources().completion_order->issued(turn);
}

void CudaRankLaunch::refuse(const std::exception_ptr& refusal) noexcept {
  record_rank_failure(refusal);
  report_rank_failure(refusal);
  complete_after_waits(refusal);
}

void CudaRankLaunch::fail(const std::exception_ptr& error) noexcept {
  if (failed_.exchange(true)) return;
  bool is_first = true;  // a refusal may have been reported before
  if (is_logged_) {
    is_first = poison_log().fail(*this, error);
  } else {
    record_rank_failure(error);
  }
  rank->recorder()->failed(sequence, rank->rank(), error);
  try {
    rank->communicator()->sequencer().abort(rank->number(), error);
  } catch (...) {
    report_task_error({rank->device(), StreamId::current(), std::current_exception()});
  }
  if (is_first) report_rank_failure(error);
}

void CudaRankLaunch::admit() {
  is_logged_ = true;
  try {
    poison_log().admit_part(shared_from_this(), position, {rank->number(), sequence}, origin_stream->location().stream);
  } catch (...) {
    is_logged_ = false;
    throw;
  }
}

std::exception_ptr CudaRankLaunch::rank_failed(const std::exception_ptr& refusal) const noexcept {
  try {
    // The error may be reported in other processes.
    const DeviceId device = rank->shared() ? detail::world_name(rank->device(), own_process()) : rank->device();
    return std::make_exception_ptr(CollectiveError(
        CollectiveError::Kind::RankFailed,
        name() + " was not executed: " + device.to_string() + " could not take part: " + describe_cause(refusal), site,
        refusal));
  } catch (...) {
    return std::current_exception();  // no memory for the message
  }
}

std::exception_ptr CudaRankLaunch::record_refusal(const std::exception_ptr& refusal) noexcept {
  reads_poison_.store(true, std::memory_order_relaxed);
  std::exception_ptr error = PoisonLog::first_failure({rank->number(), sequence}, rank_failed(refusal));
  record_rank_failure(error);
  return error;
}

void CudaRankLaunch::report_refusal(const std::exception_ptr& error) noexcept {
  report_rank_failure(error);
  PoisonLog::fail_collective({rank->number(), sequence}, error, rank->own_devices());
  if (rank->shared()) MarkScope::send_mark(*rank->shared(), sequence, error);
}

void CudaRankLaunch::record_rank_failure(const std::exception_ptr& error) noexcept {
  origin_stream->record_failure_at(error_sequence, with_site(error, site), reports);
}

void CudaRankLaunch::report_rank_failure(const std::exception_ptr& error) noexcept {
  origin_stream->report_failure(with_site(error, site));
  rank->communicator()->report_failure(error);
}

}  // namespace cox::detail
