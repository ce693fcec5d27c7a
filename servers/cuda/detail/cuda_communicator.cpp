#include <coxswain/servers/cuda/detail/cuda_communicator.hpp>

#include <coxswain/collectives/detail/nccl_types.hpp>
#include <coxswain/device_handle/call_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/process_settings.hpp>
#include <coxswain/servers/cuda/detail/clique_devices.hpp>
#include <coxswain/servers/cuda/detail/fault_report.hpp>
#include <coxswain/servers/cuda/detail/launch_gate.hpp>
#include <coxswain/servers/cuda/detail/nccl_part.hpp>
#include <coxswain/servers/cuda/detail/transfer_part.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace cox::detail {
namespace {

// Operations at most that wait for a communicator to be made: so many times what a rank may be ahead.
constexpr std::size_t most_put_off = 16;
// What others may take to begin with what they have put off. Meanwhile the rank looks again and again.
constexpr std::chrono::seconds patience_with_others{1};

NcclDevices nccl_devices(const CommunicationId& devices) {
  std::vector<int> ordinals;
  for (const DeviceId device : devices.devices()) ordinals.push_back(device.index);
  return {.devices = devices,
          .ordinals = ordinals,
          .open = [devices, ordinals] { return std::make_shared<CliqueDevices>(devices, ordinals); },
          .quiet = [] { return LaunchGate::of_process().quiet(); },
          .lost = gpu_faulted};
}

}  // namespace

CudaCommunicator::CudaCommunicator(std::shared_ptr<CommunicationGroup> among, CommunicatorNumber its_number,
                                   CommunicationId its_devices, DeviceId device, StreamSlot slot,
                                   std::shared_ptr<const CudaCommunication> communication)
    : Communicator(std::move(among), its_number, std::move(its_devices), device),
      slot_(slot),
      context_(std::make_shared<RankContext>(
          RankContext{.group = group(),
                      .number = number(),
                      .rank = rank(),
                      .recorder = recorder(),
                      .communication = std::move(communication),
                      .clique = number() == group()->number()
                                    ? NcclClique::of(number(), nccl_devices(devices()), group()->timeout())
                                    : nullptr,
                      .launched = {}})),
      begin_(context_->communication->streams.timeline(slot).submitted()),
      last_(begin_),
      self_(std::make_shared<CudaCommunicator*>(this)) {
  context_->communication->streams.timeline(slot).set_in_order(clique() != nullptr);  // then all are on one stream
}

CudaCommunicator::~CudaCommunicator() {
  *self_ = nullptr;
  if (clique() != nullptr) clique()->close();
}

StreamPosition CudaCommunicator::submit(CudaCollective collective, CudaStream& on) {
  CudaTimeline& timeline = context_->communication->streams.timeline(slot_);
  const std::shared_ptr<CollectivePart> part = make_part(collective, on);
  Asking asking{std::move(collective.requests), std::move(collective.after), std::move(collective.failure), part};
  part->position = {slot_, last_ + 1};
  if (put_off_.empty() && may_ask(asking.requests)) {
    ask_for(asking);
  } else {
    if (put_off_.size() / most_put_off >= settings().get<std::uint64_t>("collectives.max_ahead"))
      throw CallError(CallError::Kind::QueueFull, devices().devices()[rank()].to_string() + ": " +
                                                      std::to_string(put_off_.size()) +
                                                      " operations wait for their communicator to be made already");
    put_off_.push_back(std::move(asking));
  }
  ++last_;
  timeline.submit();
  return last_position();
}

// Transfers pass the gate, too: whoever asks may be the one who takes another's turn.
bool CudaCommunicator::may_ask(const CollectiveRequests& requests) {
  LaunchGate& gate = LaunchGate::of_process();
  return (clique() == nullptr || is_ready(requests)) && (gate.try_enter() || gate.try_enter(later()));
}

// The communicator has been made, and the code for such operations is there.
bool CudaCommunicator::is_ready(const CollectiveRequests& requests) {
  if (!clique()->created() && !clique()->created(later())) return false;
  if (PeerKernels::way_of(requests, world_size()) == CliqueWay::Nccl) return true;
  const auto prepared = [this](const CollectiveRequest& request) { return is_prepared(request); };
  return std::ranges::all_of(requests, prepared);
}

bool CudaCommunicator::is_prepared(const CollectiveRequest& request) {
  if (ready_.contains(PeerKernels::code_of(request))) return true;
  const auto devices = std::static_pointer_cast<CliqueDevices>(clique()->opened());  // null: it is broken
  PeerKernels* const peers = devices != nullptr ? devices->peer_kernels() : nullptr;
  if (peers == nullptr || peers->prepared(request)) {
    ready_.emplace(PeerKernels::code_of(request), peers != nullptr && peers->usable(request));
    return true;
  }
  clique()->run_apart("cox-nccl-code", [clique = clique(), devices, peers, request, then = later()]() mutable {
    try {
      peers->prepare(request, [] { return LaunchGate::of_process().quiet(); });
    } catch (...) {
      clique->abort(std::current_exception());
    }
    then();
  });
  return false;
}

// How the operations are done, once they are ready: the same on all ranks.
CliqueWay CudaCommunicator::way_of(const CollectiveRequests& requests) const {
  const CliqueWay way = PeerKernels::way_of(requests, world_size());
  const auto usable = [this](const CollectiveRequest& request) {
    const auto ready = ready_.find(PeerKernels::code_of(request));
    return ready != ready_.end() && ready->second;
  };
  return way != CliqueWay::Nccl && std::ranges::all_of(requests, usable) ? way : CliqueWay::Nccl;
}

// Why nobody can do the operations; null: NCCL or we can.
std::exception_ptr CudaCommunicator::objection(const CollectiveRequests& requests) const {
  if (clique() == nullptr || way_of(requests) != CliqueWay::Nccl) return nullptr;
  for (const CollectiveRequest& request : requests) {
    if (!facts_of(request.operation).reduces || request.count == 0) continue;
    if (nccl_type(request.element_type) && !PeerKernels::is_needed(request)) continue;
    return std::make_exception_ptr(CollectiveError(
        CollectiveError::Kind::Unsupported,
        "no " + to_string(request) + " between these GPUs: NCCL does not reduce them (exactly), and what does needs " +
            "GPUs that reach each other's memory, the setting collectives.peer_memory, and a group of nothing else",
        request.caller.site));
  }
  return nullptr;
}

UniqueFunction<void()> CudaCommunicator::later() {
  return [doorbell = context_->communication->doorbell, self = self_] {
    doorbell->post([self] {
      if (*self != nullptr) (*self)->go_on();
    });
  };
}

// The operation's number is that of the position: a rank's n-th.
void CudaCommunicator::ask_for(Asking& asking) {
  struct Leave {
    Leave() = default;
    Leave(const Leave&) = delete;
    Leave& operator=(const Leave&) = delete;
    ~Leave() { LaunchGate::of_process().leave(); }
  } const leave;
  if (asking.failure == nullptr) asking.failure = objection(asking.requests);
  std::shared_ptr<void> shared;
  if (rank() == 0 && asking.failure == nullptr) shared = make_shared_part(asking);
  static_cast<void>(ask({.requests = std::move(asking.requests),
                         .after = std::move(asking.after),
                         .failure = std::move(asking.failure),
                         .shared = std::move(shared),
                         .launch = [part = asking.part](const LaunchTurn& turn) {
                           part->sequence = turn.sequence;
                           if (turn.refusal == nullptr) return part->take_turn(turn.shared);
                           part->of->communication->doorbell->post(
                               [part, refusal = turn.refusal] { part->refuse(refusal); });
                         }}));
}

void CudaCommunicator::go_on() noexcept {
  while (!put_off_.empty()) {
    try {
      if (!may_ask(put_off_.front().requests)) return;
    } catch (...) {
      return refuse_put_off(give_up());
    }
    try {
      Asking next = put_off_.front();  // a copy: it may have to be asked for again
      ask_for(next);
    } catch (const CallError& error) {
      if (error.kind() == CallError::Kind::QueueFull && wait_for_others()) return;
      return refuse_put_off(give_up());
    } catch (...) {
      return refuse_put_off(give_up());
    }
    put_off_.pop_front();
    ahead_since_.reset();
  }
}

// The rank is as far ahead as it may be; but the others, too, may have much that they could not ask for before.
bool CudaCommunicator::wait_for_others() {
  const auto now = std::chrono::steady_clock::now();
  if (!ahead_since_) ahead_since_ = now;
  if (now - *ahead_since_ > patience_with_others) return false;
  later()();
  return true;
}

// Where what hinders it is caught.
std::exception_ptr CudaCommunicator::give_up() noexcept {
  try {
    give_up_unasked(*group(), this);
  } catch (...) {
    return std::current_exception();
  }
}

void CudaCommunicator::refuse_put_off(const std::exception_ptr& refusal) noexcept {
  for (const Asking& asking : put_off_) asking.part->refuse(refusal);
  put_off_.clear();
}

// Where the ranks meet.
std::shared_ptr<void> CudaCommunicator::make_shared_part(const Asking& asking) const {
  if (clique() == nullptr) return std::make_shared<PeerCopy>();
  auto operation = std::make_shared<NcclOperation>(asking.requests, world_size());
  operation->way = way_of(asking.requests);
  operation->ended = [recorder = recorder(), of = operation.get()] {
    const std::uint64_t sequence = of->sequence.load(std::memory_order_relaxed);
    for (std::size_t rank = 0; rank < of->launched.size(); ++rank) recorder->completed(sequence, rank);
  };
  return operation;
}

std::shared_ptr<CollectivePart> CudaCommunicator::make_part(CudaCollective& collective, CudaStream& on) const {
  const CollectiveRequest& request = collective.requests.front();
  std::shared_ptr<CollectivePart> part;
  if (clique() == nullptr) {
    auto transfer = std::make_shared<TransferPart>();
    transfer->place = place(request);
    transfer->memory = std::move(collective.memory);
    if (TransferPart::has_room(context_->communication->streams.timeline(slot_)))
      transfer->ready = std::move(collective.ready);
    part = std::move(transfer);
  } else {
    auto all = std::make_shared<NcclPart>();
    all->calls = std::move(collective.calls);
    part = std::move(all);
  }
  part->of = context_;
  part->waits = std::move(collective.waits);
  part->asked_on = on.shared_from_this();
  part->error_sequence = on.next_sequence();
  part->told = collective.told;
  part->site = request.caller.site;
  return part;
}

}  // namespace cox::detail
