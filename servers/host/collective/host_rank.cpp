#include <coxswain/servers/host/collective/host_rank.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <utility>

namespace cox::detail {

void HostRankLaunch::prepare(std::uint64_t index, const CollectiveRequests& requests, HostStream& stream) {
  const CollectiveRequest& request = requests.front();
  index_ = index;
  place_ = rank_->place(request);
  site_ = request.caller.site;
  origin_stream_ = stream.shared_from_this();
  failure_position_ = stream.failure_position();
  reports_ = stream.reports;
  const auto step = [&](auto&& run) {
    return HostStream::make_piece(
        {}, [launch = shared_from_this(), run] { run(*launch); }, to_string(request.operation).data());
  };
  try {
    arrive_ = step([](HostRankLaunch& launch) { launch.arrive(); });
    work_ = step([](HostRankLaunch& launch) { launch.work(); });
    end_ = step([](HostRankLaunch& launch) { launch.end(); });
    for (std::size_t i = 1; i < rank_->streams().size() && HostOperation::wants_helpers(requests); ++i)
      help_.push_back(step([](HostRankLaunch& launch) { launch.operation_->run_shares(); }));
  } catch (...) {
    cancel(nullptr);
    throw;
  }
}

void HostRankLaunch::cancel(const std::exception_ptr&) noexcept {
  arrive_.reset();
  work_.reset();
  end_.reset();
  help_.clear();
}

void HostRankLaunch::take_grant(LaunchGrant&& grant) noexcept {
  const HostStreamList& streams = rank_->streams();
  HostStream& communication = *streams.front();
  sequence_ = grant.sequence;
  refusal_ = grant.refusal;
  if (refusal_ != nullptr) {
    // Its end is published after those of the rank's earlier operations anyway.
    for (std::size_t i = waits.size(); i-- != 0;)
      if (rank_->is_own(waits[i])) {
        std::swap(waits[i], waits.back());
        waits.pop_back();
      }
    std::unique_ptr<HostStream::Piece> end = std::move(end_);
    cancel(nullptr);
    return communication.queue(std::move(end));
  }
  operation_ = std::static_pointer_cast<HostOperation>(std::move(grant.operation));
  operation_->open(sequence_);
  operation_->set_buffers(place_, buffers);
  const HostEvent all_have_arrived{std::shared_ptr<Timeline>(operation_, &operation_->arrived), operation_->arrivals()};
  arrive_->waits = std::move(waits);
  work_->waits.push_back(all_have_arrived);
  end_->waits.push_back({std::shared_ptr<Timeline>(operation_, &operation_->done), operation_->shares()});
  communication.queue(std::move(arrive_));
  communication.queue(std::move(work_));
  for (std::size_t i = 0; i < help_.size(); ++i) {
    help_[i]->waits.push_back(all_have_arrived);
    streams[i + 1]->queue(std::move(help_[i]));
  }
  communication.queue(std::move(end_));
}

// After an aborted operation the following ones are aborted, too, so that one deadline covers all in-flight operations.
void HostRankLaunch::arrive() noexcept {
  if (rank_->aborted != nullptr) operation_->abort(rank_->aborted);
  operation_->arrive(place_, memory.refusal(origin_stream_->location()));
}

void HostRankLaunch::work() noexcept {
  rank_->recorder()->started(sequence_, rank_->rank());
  operation_->run_shares();
}

// The error is recorded before the end is published, so that a thread that waits for the end finds the error. The end
// is published in every case.
void HostRankLaunch::end() noexcept {
  if (refusal_ != nullptr) {
    fail(refusal_);
    self_ = shared_from_this();
    return complete_after_waits();
  }
  FlightRecorder& recorder = *rank_->recorder();
  if (const std::exception_ptr failure = operation_->failure()) {
    recorder.failed(sequence_, rank_->rank(), failure);
    rank_->aborted = failure;
    abort_communicator(failure);  // the ranks no longer agree on what comes next
    fail(failure);
    memory.set_failed(failure, MemoryFailure::Contents::Undefined);
  } else if (const std::exception_ptr refused = operation_->refusal()) {
    recorder.failed(sequence_, rank_->rank(), refused);
    fail(refused);
    memory.set_failed(refused, MemoryFailure::Contents::Unchanged);
  } else {
    memory.set_succeeded();
    recorder.completed(sequence_, rank_->rank());
  }
  note_end();
}

// Ends a refused operation. Later accesses to its memory wait for its end only, so the end is published after all
// earlier accesses (`waits`) have completed, and then poisons the memory. The communication stream must not wait for
// those: they may depend on operations that are queued on that stream later.
void HostRankLaunch::complete_after_waits() noexcept {
  while (!waits.empty()) {
    awaited_ = std::move(waits.back());
    waits.pop_back();
    if (awaited_.timeline != nullptr && awaited_.timeline->notify_at(awaited_.value, waiter_))
      return;  // continues in continue_completing()
  }
  const std::shared_ptr<HostRankLaunch> self = std::move(self_);
  note_end();
}

// Completing a launch can notify the next one, which waits for its end, on the same thread. A list instead of nested
// calls bounds the stack, whatever their number.
void HostRankLaunch::continue_completing() noexcept {
  struct List {
    HostRankLaunch* first = nullptr;
    HostRankLaunch* last = nullptr;
  };
  static constinit thread_local List* running = nullptr;  // the list of a call further up the stack
  List own;
  List& list = running != nullptr ? *running : own;
  (list.last != nullptr ? list.last->completes_next_ : list.first) = this;
  list.last = this;
  if (running != nullptr) return;
  running = &own;
  while (own.first != nullptr) {
    HostRankLaunch& launch = *own.first;
    own.first = std::exchange(launch.completes_next_, nullptr);
    if (own.first == nullptr) own.last = nullptr;
    launch.complete_after_waits();  // may destroy it
  }
  running = nullptr;
}

void HostRankLaunch::note_end() noexcept {
  // Release pairs with the acquire in HostStream::idle.
  origin_stream_->collectives_in_flight.fetch_sub(1, std::memory_order_release);
  rank_->publish_end(shared_from_this());
}

void HostRankLaunch::abort_communicator(const std::exception_ptr& cause) noexcept {
  try {
    rank_->communicator()->sequencer().abort(rank_->number(), cause);
  } catch (...) {
    report_task_error({rank_->device(), StreamId::current(), std::current_exception()});
  }
}

void HostRankLaunch::fail(const std::exception_ptr& error) {
  origin_stream_->fail_at(failure_position_, with_site(error, site_), reports_);
  rank_->communicator()->report_failure(error);
}

HostRank::HostRank(std::shared_ptr<Communicator> communicator, CommunicatorNumber number, CommunicationId devices,
                   DeviceId device, HostStreams::TakenSlot slot, std::shared_ptr<const HostStreamList> streams)
    : CommunicatorRank(std::move(communicator), number, std::move(devices), device),
      slot_(slot.slot),
      timeline_(std::move(slot.timeline)),
      streams_(std::move(streams)),
      begin_(timeline_->count()),
      last_(begin_) {}

StreamPosition HostRank::submit(CollectiveSubmission submission, const std::shared_ptr<HostRankLaunch>& launch,
                                HostStream& stream) {
  if (is_first_of_process() && submission.failure == nullptr)
    submission.operation = HostOperation::make(submission.requests, devices_in_order(submission.requests.front()),
                                               communicator()->timeout(), shared());
  launch->prepare(submitted_ + 1, submission.requests, stream);
  submission.launch = launch;
  stream.collectives_in_flight.fetch_add(1, std::memory_order_relaxed);
  try {
    last_ = begin_ + communicator()->sequencer().submit(number(), rank(), std::move(submission));
    ++submitted_;
  } catch (...) {
    stream.collectives_in_flight.fetch_sub(1, std::memory_order_relaxed);
    launch->cancel(std::current_exception());
    throw;
  }
  return last_position();
}

void HostRank::publish_end(std::shared_ptr<HostRankLaunch> ended) noexcept {
  std::uint64_t last = 0;  // sequence of the last published end
  {
    const std::lock_guard lock(ending_);
    std::shared_ptr<HostRankLaunch>* at = &ahead_;
    while (*at != nullptr && (*at)->index_ < ended->index_) at = &(*at)->next_;
    ended->next_ = std::move(*at);
    *at = std::move(ended);
    while (ahead_ != nullptr && ahead_->index_ == ended_ + 1) {
      last = ahead_->sequence_;
      ++ended_;
      // Here, so that earlier operations of the rank have ended, and later ones have not begun.
      if (ahead_->refusal_ != nullptr) ahead_->memory.set_failed(ahead_->refusal_, MemoryFailure::Contents::Unchanged);
      ahead_ = std::shared_ptr<HostRankLaunch>(std::move(ahead_->next_));
    }
  }
  // First: a thread that waits for the end may leave the world then, and the leader must have the report before.
  if (last != 0 && shared()) communicator()->sequencer().note_completed(number(), rank(), last);
  timeline_->advance_to(begin_ + last);
}

}  // namespace cox::detail
