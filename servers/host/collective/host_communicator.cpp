#include <coxswain/servers/host/collective/host_communicator.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/servers/host/collective/host_meeting.hpp>

#include <algorithm>
#include <mutex>
#include <utility>

namespace cox::detail {

/// Publishes the ends of operations on the timeline. Operations may end in any order; their ends are published in the
/// order of submission. Any thread.
class HostCommunicator::Ends {
 public:
  Ends(std::shared_ptr<Timeline> timeline, std::uint64_t begin) : timeline_(std::move(timeline)), begin_(begin) {}

  void add(std::shared_ptr<Part> ended) noexcept;

 private:
  const std::shared_ptr<Timeline> timeline_;
  const std::uint64_t begin_;  // operation n ends at begin_ + n
  std::mutex mutex_;
  std::uint64_t known_ = 0;      // parts whose end is published; guarded by mutex_
  std::shared_ptr<Part> ahead_;  // ended before an earlier part, sorted by index; guarded by mutex_
};

/// The rank's part of one operation, from its submission to its end.
struct HostCommunicator::Part : std::enable_shared_from_this<HostCommunicator::Part> {
  std::shared_ptr<CommunicationGroup> group;
  CommunicatorNumber number{};
  std::size_t rank = 0;
  std::size_t place = 0;
  std::vector<RankBuffers> buffers;
  OperationMemory memory;
  std::shared_ptr<HostStream> origin_stream;
  std::uint64_t failure_position = 0;
  std::shared_ptr<FailureReports> reports;  // of origin_stream
  std::shared_ptr<FlightRecorder> recorder;
  std::shared_ptr<Ends> ends;
  std::shared_ptr<std::exception_ptr> ended;  // of the communicator: see HostCommunicator::ended_
  std::uint64_t index = 0;                    // number of this part in the communicator, counted from 1
  // Set when the sequencer grants the launch.
  std::uint64_t sequence = 0;
  std::shared_ptr<HostMeeting> meeting;
  std::exception_ptr refusal;
  HostEvents waits;  // only of a refused operation
  // Link of the list Ends::ahead_; set after the end.
  std::shared_ptr<Part> next;

  // After an aborted operation the following ones are aborted, too, so that one deadline covers all in-flight
  // operations.
  void arrive() noexcept {
    if (*ended != nullptr) meeting->abort(*ended);
    meeting->arrive(place, memory.refusal(origin_stream->location()));
  }
  void work() noexcept {
    recorder->started(sequence, rank);
    meeting->run_shares();
  }
  // The error is recorded before the end is published, so that a thread that waits for the end finds the error. The end
  // is published in every case.
  void end() noexcept {
    if (refusal != nullptr) {
      fail(refusal);
      self_ = shared_from_this();
      return complete_after_waits();
    }
    if (const std::exception_ptr failure = meeting->failure()) {
      recorder->failed(sequence, rank, failure);
      *ended = failure;
      end_communicator(failure);  // the ranks no longer agree on what comes next
      fail(failure);
      memory.set_failed(failure, MemoryFailure::Contents::Undefined);
    } else if (const std::exception_ptr refused = meeting->refusal()) {
      recorder->failed(sequence, rank, refused);
      fail(refused);
      memory.set_failed(refused, MemoryFailure::Contents::Unchanged);
    } else {
      memory.set_succeeded();
      recorder->completed(sequence, rank);
    }
    note_end();
  }

 private:
  struct Waiter final : Timeline::Waiter {
    explicit Waiter(Part& part) noexcept : of(part) {}
    void reached() noexcept override { of.complete_after_waits(); }
    Part& of;
  };

  // Later accesses to the memory wait for this end only, so it must not be published before all earlier accesses have
  // completed. The communication stream cannot wait for these: they may depend on operations that are queued on that
  // stream later.
  void complete_after_waits() noexcept {
    while (!waits.empty()) {
      awaited_ = std::move(waits.back());
      waits.pop_back();
      if (awaited_.timeline != nullptr && awaited_.timeline->notify_at(awaited_.value, waiter_))
        return;  // continues in Waiter::reached
    }
    const std::shared_ptr<Part> self = std::move(self_);
    memory.set_failed(refusal, MemoryFailure::Contents::Unchanged);
    note_end();
  }
  void note_end() noexcept {
    // Release pairs with the acquire in HostStream::idle.
    origin_stream->collectives_in_flight.fetch_sub(1, std::memory_order_release);
    ends->add(shared_from_this());
  }
  void end_communicator(const std::exception_ptr& cause) noexcept {
    try {
      group->sequencer().abort(number, cause);
    } catch (...) {
      report_task_error({group->devices().devices()[rank], StreamId::current(), std::current_exception()});
    }
  }
  void fail(const std::exception_ptr& error) {
    origin_stream->fail_at(failure_position, error, reports);
    group->report_failure(error);
  }

  Waiter waiter_{*this};
  HostEvent awaited_;
  std::shared_ptr<Part> self_;  // set while it waits: keeps the part alive
};

void HostCommunicator::Ends::add(std::shared_ptr<Part> ended) noexcept {
  std::uint64_t known = 0;  // sequence of the last published end
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Part>* at = &ahead_;
    while (*at != nullptr && (*at)->index < ended->index) at = &(*at)->next;
    ended->next = std::move(*at);
    *at = std::move(ended);
    while (ahead_ != nullptr && ahead_->index == known_ + 1) {
      known = ahead_->sequence;
      ++known_;
      std::shared_ptr<Part> next = std::move(ahead_->next);
      ahead_ = std::move(next);
    }
  }
  timeline_->advance_to(begin_ + known);
}

HostCommunicator::HostCommunicator(std::shared_ptr<CommunicationGroup> group, CommunicatorNumber number,
                                   CommunicationId devices, DeviceId device, HostStreams::TakenSlot slot,
                                   std::shared_ptr<const HostStreamList> streams)
    : Communicator(std::move(group), number, std::move(devices), device),
      slot_(slot.slot),
      timeline_(std::move(slot.timeline)),
      streams_(std::move(streams)),
      begin_(timeline_->count()),
      last_(begin_),
      ends_(std::make_shared<Ends>(timeline_, begin_)),
      ended_(std::make_shared<std::exception_ptr>()) {}

StreamPosition HostCommunicator::submit(HostCollective collective, HostStream& stream) {
  const CollectiveRequest& request = collective.requests.front();
  std::shared_ptr<HostMeeting> meeting;
  if (rank() == 0 && collective.failure == nullptr)
    meeting = HostMeeting::make(collective.requests, devices_in_order(request), group()->timeout());
  CollectiveLaunch launch = make_launch(collective, stream);
  stream.collectives_in_flight.fetch_add(1, std::memory_order_relaxed);
  try {
    last_ = begin_ + submit_to_sequencer({.requests = std::move(collective.requests),
                                          .dependencies = std::move(collective.dependencies),
                                          .failure = std::move(collective.failure),
                                          .shared = std::move(meeting),
                                          .launch = std::move(launch)});
    ++submitted_;
  } catch (...) {
    stream.collectives_in_flight.fetch_sub(1, std::memory_order_relaxed);
    throw;
  }
  return last_position();
}

// Allocates all memory here, so that the launch cannot fail: the other ranks would wait for this one.
CollectiveLaunch HostCommunicator::make_launch(HostCollective& collective, HostStream& stream) const {
  const CollectiveRequest& request = collective.requests.front();
  auto part = std::make_shared<Part>();
  part->group = group();
  part->number = number();
  part->rank = rank();
  part->place = place(request);
  part->buffers = std::move(collective.buffers);
  part->memory = std::move(collective.memory);
  part->origin_stream = stream.shared_from_this();
  part->failure_position = stream.failure_position();
  part->reports = stream.reports;
  part->recorder = recorder();
  part->ends = ends_;
  part->ended = ended_;
  part->index = submitted_ + 1;
  const char* const name = to_string(request.operation).data();
  auto arrive = HostStream::make_piece(std::move(collective.waits), [part] { part->arrive(); }, name);
  auto work = HostStream::make_piece({}, [part] { part->work(); }, name);
  auto end = HostStream::make_piece({}, [part] { part->end(); }, name);
  std::vector<std::unique_ptr<HostStream::Piece>> help;
  for (std::size_t i = 1; i < streams_->size() && HostMeeting::wants_helpers(collective.requests); ++i)
    help.push_back(HostStream::make_piece({}, [part] { part->meeting->run_shares(); }, name));
  return [part = std::move(part), arrive = std::move(arrive), work = std::move(work), end = std::move(end),
          help = std::move(help), streams = streams_](const LaunchGrant& grant) mutable noexcept {
    HostStream& communication = *streams->front();
    part->sequence = grant.sequence;
    part->refusal = grant.refusal;
    if (grant.refusal != nullptr) {
      part->waits = std::move(arrive->waits);
    } else {
      part->meeting = std::static_pointer_cast<HostMeeting>(grant.shared);
      HostMeeting& meeting = *part->meeting;
      meeting.open(grant.sequence);
      meeting.set_buffers(part->place, part->buffers);
      const HostEvent all_have_arrived{std::shared_ptr<Timeline>(part->meeting, &meeting.arrived), meeting.ranks()};
      work->waits.push_back(all_have_arrived);
      end->waits.push_back({std::shared_ptr<Timeline>(part->meeting, &meeting.done), meeting.shares()});
      communication.queue(std::move(arrive));
      communication.queue(std::move(work));
      for (std::size_t i = 0; i < help.size(); ++i) {
        help[i]->waits.push_back(all_have_arrived);
        (*streams)[i + 1]->queue(std::move(help[i]));
      }
    }
    communication.queue(std::move(end));
  };
}

}  // namespace cox::detail
