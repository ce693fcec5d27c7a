#include <coxswain/servers/cuda/detail/cuda_communicator.hpp>

#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/servers/cuda/detail/fault_report.hpp>

#include <atomic>
#include <optional>
#include <source_location>
#include <utility>

namespace cox::detail {

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
  std::atomic<bool> is_being_asked_for{true};
  std::source_location site;
  std::shared_ptr<FlightRecorder> recorder;
  std::shared_ptr<const CudaCommunication> communication;
  // Known when it is its turn.
  std::uint64_t sequence = 0;
  std::shared_ptr<PeerCopy> meeting;

  // It is the operation's turn, on any thread. If all that the rank waits for has been issued, the other can do the
  // rest, and this device's thread need not be woken before the end.
  bool leave_to_other() {
    if (!ready) return false;
    auto mine = side(std::move(*ready), nullptr);
    if (meeting->come_first(place, mine)) {
      recorder->started(sequence, rank);
      return true;
    }
    memory = std::move(mine.memory);
    return false;
  }
  // The same, on the device thread: issues it behind what the rank waits for.
  void issue() {
    const CudaCommunication& on = *communication;
    try {
      on.streams.submit(*on.stream, waits, {"transfer", nullptr, site},
                        [part = shared_from_this()](const IssueTarget& target) { part->meet(*target.queue); });
    } catch (...) {
      meeting->come(place, side({}, std::current_exception()), on.stream->queue().native().native(),
                    on.streams.events());
    }
  }

  // Its place in the communication stream has come.
  void meet(StreamQueue& queue) {
    CudaEvents& events = communication->streams.events();
    std::vector<std::shared_ptr<CudaEvent>> behind;
    std::exception_ptr failure;
    try {
      recorder->started(sequence, rank);
      if (gpu_faulted()) throw_gpu_fault(site);
      if (meeting->nobody_is_there()) behind.push_back(queue.mark(events));
    } catch (...) {
      failure = std::current_exception();
    }
    meeting->come(place, side(std::move(behind), std::move(failure)), queue.native().native(), events);
  }

  PeerCopy::Side side(std::vector<std::shared_ptr<CudaEvent>> behind, std::exception_ptr failure) {
    return {
        .memory = std::move(memory),
        .ready = std::move(behind),
        .context = communication->context,
        .failure = std::move(failure),
        .end = [part = shared_from_this()](const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& event) {
          part->communication->doorbell->post([part, error, event] { part->end(error, event); });
        }};
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
  part->is_being_asked_for.store(false, std::memory_order_relaxed);
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
  part->ready = std::move(collective.ready);
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
    // While its own thread asks for it, that is the one to copy: it is awake. A hint, so relaxed.
    if (turn.refusal == nullptr && !part->is_being_asked_for.load(std::memory_order_relaxed) && part->leave_to_other())
      return;
    part->communication->doorbell->post([part, refusal = turn.refusal] {
      if (refusal != nullptr) return part->refuse(refusal);
      part->issue();
    });
  };
}

}  // namespace cox::detail
