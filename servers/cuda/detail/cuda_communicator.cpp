#include <coxswain/servers/cuda/detail/cuda_communicator.hpp>

#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/servers/cuda/detail/fault_report.hpp>

#include <optional>
#include <source_location>
#include <utility>

namespace cox::detail {
namespace {

// Copies of one communicator that a driver is given at a time: its own queue must not fill up (T3).
constexpr std::uint64_t most_in_flight = 256;

}  // namespace

/// The rank's part in one operation, from when it asks for it to its end.
struct CudaCommunicator::Part : std::enable_shared_from_this<CudaCommunicator::Part> {
  std::shared_ptr<CommunicationGroup> group;
  CommunicatorNumber number;
  std::size_t rank = 0;
  std::size_t place = 0;
  StreamPosition position;  // of the end
  std::vector<PeerRange> memory;
  StreamPositions waits;
  std::optional<std::vector<std::shared_ptr<CudaEvent>>> ready;
  std::shared_ptr<CudaStream> asked_on;
  std::uint64_t error_sequence = 0;
  bool told = false;
  std::source_location site;
  std::shared_ptr<FlightRecorder> recorder;
  std::shared_ptr<const CudaCommunication> communication;
  // Known when it is its turn.
  std::uint64_t sequence = 0;
  std::shared_ptr<PeerCopy> meeting;
  bool came = false;

  // It is the operation's turn, on any thread. If all that the rank waits for has been issued, its device's thread need
  // not be woken before the end.
  void take_turn() {
    if (ready) return come(std::move(*ready), nullptr);
    communication->doorbell->post([part = shared_from_this()] { part->wait_for_issue(); });
  }

  // The same, on the device thread: comes when the driver can be told what the rank waits for.
  void wait_for_issue() {
    CudaStreams& streams = communication->streams;
    try {
      streams.submit(
          *communication->stream, waits, {nullptr, nullptr, site},
          [part = shared_from_this(), &streams](const IssueTarget& target) {
            std::vector<std::shared_ptr<CudaEvent>> behind;
            std::exception_ptr failure;
            try {
              if (gpu_faulted()) throw_gpu_fault(part->site);
              behind.push_back(target.queue->mark(streams.events()));
            } catch (...) {
              failure = std::current_exception();
            }
            part->come(std::move(behind), failure);
          },
          room());
    } catch (...) {
      come({}, std::current_exception());
    }
  }

  // What must have been reached before the driver is given another copy.
  [[nodiscard]] std::shared_ptr<CudaEvent> room() const {
    CudaTimeline& timeline = communication->streams.timeline(position.stream);
    if (has_room(timeline)) return nullptr;
    return timeline.covering(timeline.completed() + most_in_flight / 2)->event;
  }
  [[nodiscard]] static bool has_room(CudaTimeline& timeline) noexcept {
    if (timeline.in_flight() >= most_in_flight / 2) timeline.poll();
    return timeline.in_flight() < most_in_flight;
  }

  void come(std::vector<std::shared_ptr<CudaEvent>> behind, std::exception_ptr failure) {
    if (std::exchange(came, true)) return;
    recorder->started(sequence, rank);
    const auto at = std::exchange(meeting, nullptr);  // which will refer to this part
    at->come(place, {.memory = std::move(memory),
                     .ready = std::move(behind),
                     .stream = communication->stream->queue().native().native(),
                     .events = &communication->streams.events(),
                     .failure = std::move(failure),
                     .end = [part = shared_from_this()](const std::exception_ptr& error,
                                                        const std::shared_ptr<CudaEvent>& event) {
                       part->communication->doorbell->post([part, error, event] { part->end(error, event); });
                     }});
  }

  // On the device thread. The error comes before the end: who waits for that finds it.
  void end(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& event) noexcept {
    try {
      if (error != nullptr) {
        recorder->failed(sequence, rank, error);
        group->sequencer().abort(number, error);  // the ranks no longer agree on what comes next
        fail(error);
      } else if (event != nullptr) {
        event->notify_lazily(
            [recorder = recorder, sequence = sequence, rank = rank] { recorder->completed(sequence, rank); });
      }
    } catch (...) {
      report_task_error({group->devices().devices()[rank], StreamId::current(), std::current_exception()});
    }
    communication->streams.timeline(position.stream).end(position.position, event);
  }
  void refuse(const std::exception_ptr& refusal) noexcept {
    fail(refusal);
    communication->streams.timeline(position.stream).end(position.position, nullptr);
  }
  void fail(const std::exception_ptr& error) noexcept {
    if (!told) asked_on->fail_at(error_sequence, error);
    group->report_failure(error);
  }
};

CudaCommunicator::CudaCommunicator(std::shared_ptr<CommunicationGroup> group, CommunicatorNumber number,
                                   CommunicationId devices, DeviceId device, StreamSlot slot,
                                   std::shared_ptr<const CudaCommunication> communication)
    : Communicator(std::move(group), number, std::move(devices), device),
      slot_(slot),
      communication_(std::move(communication)),
      begin_(communication_->streams.timeline(slot).submitted()),
      last_(begin_) {}

StreamPosition CudaCommunicator::submit(CudaCollective collective, CudaStream& on) {
  std::shared_ptr<PeerCopy> meeting;
  if (rank() == 0 && collective.failure == nullptr) meeting = std::make_shared<PeerCopy>();
  const std::shared_ptr<Part> part = make_part(collective, on);
  last_ = begin_ + ask({.requests = std::move(collective.requests),
                        .after = std::move(collective.after),
                        .failure = std::move(collective.failure),
                        .shared = std::move(meeting),
                        .launch = launch_of(part)});
  communication_->streams.timeline(slot_).submit();
  part->position = last_position();
  return last_position();
}

std::shared_ptr<CudaCommunicator::Part> CudaCommunicator::make_part(CudaCollective& collective, CudaStream& on) const {
  const CollectiveRequest& request = collective.requests.front();
  auto part = std::make_shared<Part>();
  part->group = group();
  part->number = number();
  part->rank = rank();
  part->place = place(request);
  part->memory = std::move(collective.memory);
  part->waits = std::move(collective.waits);
  if (Part::has_room(communication_->streams.timeline(slot_))) part->ready = std::move(collective.ready);
  part->asked_on = on.shared_from_this();
  part->error_sequence = on.next_sequence();
  part->told = collective.told;
  part->site = request.caller.site;
  part->recorder = recorder();
  part->communication = communication_;
  return part;
}

CollectiveLaunch CudaCommunicator::launch_of(std::shared_ptr<Part> part) {
  return [part = std::move(part)](const LaunchTurn& turn) {
    part->sequence = turn.sequence;
    part->meeting = std::static_pointer_cast<PeerCopy>(turn.shared);
    if (turn.refusal == nullptr) return part->take_turn();
    part->communication->doorbell->post([part, refusal = turn.refusal] { part->refuse(refusal); });
  };
}

}  // namespace cox::detail
