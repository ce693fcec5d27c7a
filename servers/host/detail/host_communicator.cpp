#include <coxswain/servers/host/detail/host_communicator.hpp>

#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/servers/host/detail/host_meeting.hpp>

#include <algorithm>
#include <utility>

namespace cox::detail {

/// The rank's part in one operation, from when it asks for it to its end.
struct HostCommunicator::Part {
  std::shared_ptr<CommunicationGroup> group;
  CommunicatorNumber number;
  std::vector<RankBuffers> buffers;
  std::size_t place;
  std::size_t rank;
  std::shared_ptr<HostStream> asked_on;
  std::uint64_t failure_position;
  bool told;
  std::shared_ptr<FlightRecorder> recorder;
  std::shared_ptr<Timeline> timeline;
  std::uint64_t begin;
  // Known when it is its turn.
  std::uint64_t sequence = 0;
  std::shared_ptr<HostMeeting> meeting = nullptr;
  std::exception_ptr refusal = nullptr;

  void arrive() noexcept { meeting->arrive(place); }
  void share() noexcept {
    recorder->started(sequence, rank);
    meeting->run_share(place);
  }
  // The error comes before the end: who waits for that finds it. Whatever happens, the end comes.
  void end() noexcept {
    if (refusal != nullptr) {
      fail(refusal);
    } else if (const std::exception_ptr failure = meeting->failure()) {
      recorder->failed(sequence, rank, failure);
      end_communicator(failure);  // the ranks no longer agree on what comes next
      fail(failure);
    } else {
      recorder->completed(sequence, rank);
    }
    meeting.reset();
    asked_on->collectives_under_way.fetch_sub(1, std::memory_order_release);  // pairs with HostStream::idle
    timeline->advance_to(begin + sequence);
  }
  void end_communicator(const std::exception_ptr& cause) noexcept {
    try {
      group->sequencer().abort(number, cause);
    } catch (...) {
      report_task_error({group->devices().devices()[rank], StreamId::current(), std::current_exception()});
    }
  }
  void fail(const std::exception_ptr& error) {
    if (!told) asked_on->fail_at(failure_position, error);
    group->report_failure(error);
  }
};

HostCommunicator::HostCommunicator(std::shared_ptr<CommunicationGroup> group, CommunicatorNumber number,
                                   const CommunicationId& devices, DeviceId device, HostStreams::TakenSlot slot,
                                   std::shared_ptr<HostStream> communication)
    : group_(std::move(group)),
      number_(number),
      devices_(devices),
      rank_(devices.rank_of(device)),
      slot_(slot.slot),
      timeline_(std::move(slot.timeline)),
      communication_(std::move(communication)),
      recorder_(group_->sequencer().recorder(number)),
      begin_(timeline_->count()),
      last_(begin_) {}

std::exception_ptr HostCommunicator::abort(const std::exception_ptr& cause) noexcept {
  try {
    group_->sequencer().abort(number_, cause);
    if (const std::exception_ptr refusal = group_->sequencer().broken(number_)) return refusal;
  } catch (...) {
    report_task_error({devices_.devices()[rank_], StreamId::current(), std::current_exception()});
  }
  return cause;
}

std::vector<DeviceId> HostCommunicator::places_of(const CollectiveRequest& request) const {
  std::vector<DeviceId> places(devices_.devices().begin(), devices_.devices().end());
  const bool sends = request.operation == CollectiveOperation::Send;
  if (is_transfer(request.operation) && sends != (rank_ == 0)) std::ranges::reverse(places);
  return places;
}

StreamPosition HostCommunicator::submit(HostCollective collective, HostStream& on) {
  const CollectiveOperation operation = collective.requests.front().operation;
  const char* const name = to_string(operation).data();
  const std::size_t place = is_transfer(operation) ? (operation == CollectiveOperation::Send ? 0U : 1U) : rank_;
  auto part = std::make_shared<Part>(Part{.group = group_,
                                          .number = number_,
                                          .buffers = std::move(collective.buffers),
                                          .place = place,
                                          .rank = rank_,
                                          .asked_on = on.shared_from_this(),
                                          .failure_position = on.failure_position(),
                                          .told = collective.told,
                                          .recorder = recorder_,
                                          .timeline = timeline_,
                                          .begin = begin_});
  std::shared_ptr<void> shared;
  if (rank_ == 0 && !collective.failure)
    shared = HostMeeting::make(collective.requests, places_of(collective.requests.front()), group_->timeout());
  // All that needs memory is made here, so that a turn cannot fail: the other ranks would wait.
  auto arrive = HostStream::make_piece(
      std::move(collective.waits), [part] { part->arrive(); }, name);
  auto share = HostStream::make_piece(
      {}, [part] { part->share(); }, name);
  auto end = HostStream::make_piece(
      {}, [part] { part->end(); }, name);
  auto turn = [part, arrive = std::move(arrive), share = std::move(share), end = std::move(end),
               communication = communication_](const LaunchTurn& given) mutable noexcept {
    part->sequence = given.sequence;
    part->refusal = given.refusal;
    if (given.refusal == nullptr) {
      part->meeting = std::static_pointer_cast<HostMeeting>(given.shared);
      HostMeeting& meeting = *part->meeting;
      meeting.open(given.sequence);
      meeting.bring(part->place, part->buffers);
      share->waits.push_back({std::shared_ptr<Timeline>(part->meeting, &meeting.arrived), meeting.ranks()});
      end->waits.push_back({std::shared_ptr<Timeline>(part->meeting, &meeting.done), meeting.ranks()});
      communication->queue(std::move(arrive));
      communication->queue(std::move(share));
    }
    communication->queue(std::move(end));
  };
  on.collectives_under_way.fetch_add(1, std::memory_order_relaxed);
  try {
    const std::uint64_t sequence = group_->sequencer().submit(number_, rank_,
                                                              {.requests = std::move(collective.requests),
                                                               .after = std::move(collective.after),
                                                               .failure = std::move(collective.failure),
                                                               .shared = std::move(shared),
                                                               .launch = CollectiveLaunch(std::move(turn))});
    last_ = begin_ + sequence;
  } catch (...) {
    on.collectives_under_way.fetch_sub(1, std::memory_order_relaxed);
    throw;
  }
  return last_position();
}

}  // namespace cox::detail
