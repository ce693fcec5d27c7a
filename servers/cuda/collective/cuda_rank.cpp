#include <coxswain/servers/cuda/collective/cuda_rank.hpp>

#include <coxswain/collectives/communicator/nccl_world_part.hpp>
#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/collectives/nccl/nccl_types.hpp>
#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/handle/recycled_memory.hpp>
#include <coxswain/servers/cuda/collective/device_work.hpp>
#include <coxswain/servers/cuda/copy/peer_copy.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/peer/cuda_nccl_resources.hpp>
#include <coxswain/servers/cuda/peer/launch_gate.hpp>
#include <coxswain/servers/cuda/stream/poison_log.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace cox::detail {
namespace {

// Limit of operations that wait for the communicator to be created, as a multiple of collectives.max_ahead.
constexpr std::size_t most_put_off = 16;
// How long a rank that is too far ahead retries, since the other ranks may have deferred operations to submit first.
constexpr std::chrono::seconds patience_with_others{1};

std::size_t place_of(DeviceId device, const std::vector<DeviceId>& devices) noexcept {
  return static_cast<std::size_t>(std::ranges::find(devices, device) - devices.begin());
}

InFlightOperations::CompletedCallback when_completed(const std::shared_ptr<FlightRecorder>& recorder,
                                                     const std::vector<std::size_t>& ranks) {
  return [recorder, ranks](std::size_t rank, std::span<const std::uint64_t> sequences) {
    recorder->completed(sequences, ranks[rank]);
  };
}

// Another process has reported that the operation fails on all ranks, of which `device` has one.
void mark_failed(CommunicatorNumber number, std::uint64_t sequence, const std::exception_ptr& why,
                 DeviceId device) noexcept {
  PoisonLog::fail_collective({number, sequence}, PoisonLog::first_failure({number, sequence}, why), {&device, 1});
}

NcclDevices nccl_devices(const std::shared_ptr<Communicator>& among, const std::vector<DeviceId>& own) {
  const CommunicationId& devices = among->devices();
  std::vector<int> ordinals;
  std::vector<std::size_t> ranks;
  for (const DeviceId device : own) {
    ordinals.push_back(device.index);
    ranks.push_back(devices.rank_of(device));
  }
  return {.devices = devices,
          .ordinals = ordinals,
          .open =
              [devices, ordinals, is_reproducible = among->is_reproducible()] {
                return std::make_unique<CudaNcclResources>(devices, ordinals, is_reproducible);
              },
          .quiesce = [] { return LaunchGate::of_process().quiesce(LaunchGate::Purpose::Create); },
          .try_quiesce = [](std::chrono::milliseconds within) { return LaunchGate::of_process().try_quiesce(within); },
          .hold_while_busy =
              [ordinals](const std::shared_ptr<void>& token) { DeviceWork::hold_while_busy(ordinals, token); },
          .is_lost = gpu_faulted,
          .on_completed = when_completed(among->sequencer().recorder(among->number()), ranks),
          .world = nccl_world_part(among, mark_failed)};
}

}  // namespace

CudaRank::CudaRank(std::shared_ptr<Communicator> among, CommunicatorNumber its_number, CommunicationId its_devices,
                   DeviceId device, StreamSlot slot, std::shared_ptr<const CollectiveResources> resources,
                   std::shared_ptr<StreamHold> hold)
    : CommunicatorRank(std::move(among), its_number, std::move(its_devices), device),
      resources_(std::move(resources)),
      hold_(std::move(hold)),
      own_devices_(cox::own_devices(devices())),
      nccl_communicator_(find_nccl_communicator()),
      nccl_rank_(place_of(device, cox::own_devices(communicator()->devices()))),
      lane_rank_(place_of(device, own_devices_)),
      lane_(nccl_communicator_ == nullptr ? nullptr : find_lane()),
      slot_(slot),
      begin_(resources_->streams.timeline(slot).submitted()),
      last_(begin_),
      pending_(PendingCollectives::for_device(device)) {
  resources_->streams.timeline(slot).set_in_order(nccl_communicator_ != nullptr);  // all are on one stream
}

// Transfers between devices of this process are peer copies. Those to other processes share NCCL's communicators with
// the operations of all ranks: all of them are on one stream, in one order in all processes.
std::shared_ptr<NcclCommunicator> CudaRank::find_nccl_communicator() const {
  const std::shared_ptr<Communicator>& among = communicator();
  if (number() != among->number() && !shared()) return nullptr;
  return NcclCommunicator::find_or_create(among->number(), nccl_devices(among, cox::own_devices(among->devices())),
                                          among->timeout());
}

NcclCommunicator::Lane* CudaRank::find_lane() const {
  if (number() == communicator()->number()) return &nccl_communicator_->lane();
  return &nccl_communicator_->transfers(number(), *shared()->transfer, {device(), rank()},
                                        when_completed(recorder(), {rank()}));
}

void CudaRank::close() noexcept {
  poison_refused_until(last_);
  resources_->streams.poison_log()->forget(number());
  if (nccl_communicator_ != nullptr) nccl_communicator_->close();
}

void CudaRank::poison_refused_until(std::uint64_t position) noexcept {
  while (!refused_.empty() && refused_.begin()->first <= position) [[unlikely]] {
    auto next = refused_.extract(refused_.begin());
    next.mapped()();
  }
}

// The rank's n-th operation has sequence number n and completes at position begin_ + n.
void CudaRank::submit(CollectiveSubmission submission) {
  if (unsubmitted_.size() >= most_put_off &&
      unsubmitted_.size() / most_put_off >= settings().get<std::uint64_t>("collectives.max_ahead"))
    throw CallError(CallError::Kind::QueueFull,
                    "call refused: queue_full: " + device().to_string() + " has " +
                        std::to_string(unsubmitted_.size()) +
                        " operations that wait for the creation of their communicator (setting collectives.max_ahead)");
  CudaTimeline& timeline = resources_->streams.timeline(slot_);
  timeline.reserve_end();
  submission.on_launch_thread = nccl_communicator_ != nullptr;
  unsubmitted_.push_back(std::move(submission));
  if (!rest_) rest_.emplace(PendingCollectives::Call::continuation(pending_));
  ++last_;
  timeline.submit();
}

bool CudaRank::begins_stream() const noexcept {
  if (unsubmitted_.empty() || resources_->streams.timeline(slot_).issued() < last_ - unsubmitted_.size()) return false;
  return shared() || PeerKernels::algorithm_of(unsubmitted_.front().requests, world_size(), keeps_order()) ==
                         CollectiveAlgorithm::Nccl;
}

void CudaRank::submit_to_sequencer() noexcept {
  while (!unsubmitted_.empty()) {
    try {
      if (!submit_some()) return;
      ahead_since_.reset();
    } catch (const CallError& error) {
      if (error.kind() == CallError::Kind::QueueFull && held_up_ && wait_for_others()) return;
      return refuse_unsubmitted(abort_all_ranks());
    } catch (...) {
      return refuse_unsubmitted(abort_all_ranks());
    }
  }
  held_up_ = false;
  rest_.reset();
}

void CudaRank::submit_what_is_refused() noexcept {
  if (retry_pending_) submit_to_sequencer();
}

// Returns false if no operation can be submitted yet; then submit_to_sequencer() will be called again. Transfers pass
// the gate as well: the submitting thread may call launches of other operations that its submission releases. What is
// refused launches nothing, and waits for neither the gate nor NCCL: operations that wait for it on their devices may
// have been released, and a caller that closes the gate waits for their launches.
bool CudaRank::submit_some() {
  LaunchGate& gate = LaunchGate::of_process();
  const std::size_t count = retry_pending_ ? 0 : prepare();
  if (count == 0 || (!gate.try_enter() && (retry_pending_ || !gate.try_enter(make_retry())))) {
    retry_pending_ = held_up_ = true;
    if (!refuses_all()) return false;
    communicator()->sequencer().submit(number(), rank(), unsubmitted_, std::min(unsubmitted_.size(), max_batch));
    return true;
  }
  struct Leave {
    explicit Leave(LaunchGate& entered) noexcept : gate(entered) {}
    Leave(const Leave&) = delete;
    Leave& operator=(const Leave&) = delete;
    ~Leave() { gate.leave(); }
    LaunchGate& gate;
  } const leave(gate);
  communicator()->sequencer().submit(number(), rank(), unsubmitted_, count);
  return true;
}

// Returns how many of the first queued operations can be submitted to the sequencer. If it had to stop early,
// submit_to_sequencer() will be called again.
std::size_t CudaRank::prepare() {
  // Those of several processes are released one by one, so the sequencer is locked for a few at a time: the first one
  // may be released meanwhile.
  const std::size_t most = shared() ? max_shared_batch : max_batch;
  std::size_t prepared = 0;
  for (CollectiveSubmission& submission : unsubmitted_) {
    if (prepared == most) break;
    if (nccl_communicator_ == nullptr) {
      if (is_first_of_process() && submission.failure == nullptr) submission.operation = make_recycled<PeerCopy>();
    } else {
      std::optional<Choice> choice = choose_algorithm(submission.requests);
      if (!choice) {
        retry_pending_ = held_up_ = true;
        return prepared;
      }
      if (submission.failure == nullptr) submission.failure = std::move(choice->refusal);
      if (is_first_of_process() && submission.failure == nullptr) {
        auto operation = make_recycled<NcclOperation>(submission.requests, own_devices_.size());
        operation->algorithm = choice->algorithm;
        submission.operation = std::move(operation);
      }
    }
    ++prepared;
  }
  return prepared;
}

// The same algorithm on all ranks; a refusal may be that of one process. std::nullopt while what the algorithm needs is
// being made: the devices are opened, and the kernels compiled, for our own kernels, or NCCL creates its communicator.
std::optional<CudaRank::Choice> CudaRank::choose_algorithm(const CollectiveRequests& requests) {
  const auto is_created = [&] { return nccl_communicator_->created() || nccl_communicator_->created(make_retry()); };
  // Several processes agree in the creation whether their kernels have access to the memory of all ranks. They create
  // NCCL's communicators also for a refusal: for that all processes meet, and one with other settings, which refuses
  // nothing, would wait for this one until the timeout.
  if (shared() && !is_created()) return std::nullopt;
  const CollectiveAlgorithm algorithm = PeerKernels::algorithm_of(requests, world_size(), keeps_order());
  std::exception_ptr failure;  // why these kernels cannot be used
  if (algorithm != CollectiveAlgorithm::Nccl) {
    if (!nccl_communicator_->devices_open() && !nccl_communicator_->devices_open(make_retry())) return std::nullopt;
    const CollectiveRequest* last = nullptr;
    bool is_agreed = true;  // all processes have the same failures
    for (const CollectiveRequest& request : requests) {
      // The requests of a group usually have the same code.
      if (last != nullptr && PeerKernels::code_of(request) == PeerKernels::code_of(*last)) continue;
      last = &request;
      const std::optional<CodeFailure> its = failure_of_code(request);
      if (!its) return std::nullopt;
      if (its->cause == nullptr) continue;
      failure = its->cause;
      is_agreed = is_agreed && its->is_agreed;
    }
    if (failure == nullptr) return Choice{.algorithm = algorithm};
    // The other processes use their kernels.
    if (shared() && !is_agreed && nccl_communicator_->broken() == nullptr) return Choice{.refusal = failure};
  }
  if (std::exception_ptr refusal = refusal_without_kernels(requests, failure)) return Choice{.refusal = refusal};
  if (!is_created()) return std::nullopt;
  return Choice{.refusal = refusal_by_nccl(requests)};
}

// Why the kernels for the request cannot be used; std::nullopt while they are being compiled.
std::optional<CudaRank::CodeFailure> CudaRank::failure_of_code(const CollectiveRequest& request) {
  const PeerKernelCode code = PeerKernels::code_of(request);
  if (const auto known = code_failures_.find(code); known != code_failures_.end()) return known->second;
  const auto devices = std::static_pointer_cast<CudaNcclResources>(nccl_communicator_->opened());
  if (devices == nullptr) return CodeFailure{nccl_communicator_->broken(), false};
  const auto remember = [&](const std::exception_ptr& cause, bool is_agreed) {
    return code_failures_.emplace(code, CodeFailure{cause, is_agreed}).first->second;
  };
  PeerKernels* const peers = devices->peer_kernels();
  if (peers == nullptr) return remember(devices->why_no_peer_kernels(), true);
  if (!devices->has_kernels_for(request))
    return remember(std::make_exception_ptr(CollectiveError(
                        CollectiveError::Kind::Unsupported,
                        "not all processes of the communicator have NVRTC to compile these kernels", {})),
                    true);
  if (peers->prepared(request)) return remember(peers->failure(request), false);
  nccl_communicator_->run_on_helper_thread(
      "cox-nccl-code", [communicator = nccl_communicator_, devices, peers, request, then = make_retry()]() mutable {
        try {
          peers->prepare(request, [] { return LaunchGate::of_process().quiesce(LaunchGate::Purpose::Wait); });
        } catch (...) {
          communicator->abort(std::current_exception());
        }
        then();
      });
  return std::nullopt;
}

// Whether reductions of floating-point elements must be in the order of ranks. One rank's are copies.
bool CudaRank::keeps_order() const noexcept { return communicator()->is_reproducible() && world_size() > 1; }

// Why operations that need kernels in peer memory are refused; null if NCCL can do them. `failure`: of the kernels that
// do such operations; null if there are none.
std::exception_ptr CudaRank::refusal_without_kernels(const CollectiveRequests& requests,
                                                     const std::exception_ptr& failure) const {
  if (world_size() == 1) return nullptr;
  const auto needed = std::ranges::find_if(
      requests, [&](const CollectiveRequest& each) { return PeerKernels::is_needed(each, keeps_order()); });
  if (needed == requests.end()) return nullptr;
  // Nothing can be launched any more: the launch reports the cause to all ranks, and aborts the communicator.
  if (nccl_communicator_->broken() != nullptr) return nullptr;
  const std::string why = PeerKernels::is_needed(*needed, false)
                              ? "NCCL does not do this reduction, or not exactly, and "
                              : "NCCL does not reduce in the order of ranks (setting collectives.reproducible), and ";
  return std::make_exception_ptr(
      CollectiveError(CollectiveError::Kind::Unsupported,
                      to_string(*needed) + " refused between these GPUs: " + why +
                          (failure != nullptr ? describe_cause(failure) : why_no_kernels(requests)),
                      needed->caller.site, failure));
}

// Why PeerKernels::algorithm_of() is NCCL, although an operation needs kernels.
std::string CudaRank::why_no_kernels(const CollectiveRequests& requests) const {
  if (world_size() > PeerKernels::max_ranks)
    return "kernels in peer memory support at most " + std::to_string(PeerKernels::max_ranks) + " GPUs";
  for (const CollectiveRequest& each : requests)
    if (facts_of(each.operation).reduces && !has_peer_kernels(each.element_type))
      return "there are no kernels in peer memory for elements of type " + std::string(to_string(each.element_type));
  const auto other =
      std::ranges::find_if(requests, [](const CollectiveRequest& each) { return !facts_of(each.operation).reduces; });
  return "kernels in peer memory do groups of reductions only, and this one contains " +
         std::string(other != requests.end() ? to_string(other->operation) : "another operation");
}

// Why NCCL does not do the operations; null if it does. Precondition: it has created its communicators, or has failed.
std::exception_ptr CudaRank::refusal_by_nccl(const CollectiveRequests& requests) const {
  if (world_size() == 1) return nullptr;
  for (const CollectiveRequest& request : requests) {
    if (!facts_of(request.operation).reduces || request.count == 0) continue;
    const int version = nccl().version;
    if (nccl_reduces(request.element_type, version)) continue;
    if (nccl_communicator_->broken() != nullptr) return nullptr;
    return std::make_exception_ptr(CollectiveError(CollectiveError::Kind::Unsupported,
                                                   to_string(request) + " refused between these GPUs: NCCL " +
                                                       nccl_version_text(version) +
                                                       " does not reduce elements of this type, 2.24 does",
                                                   request.caller.site));
  }
  return nullptr;
}

UniqueFunction<void()> CudaRank::make_retry() {
  return [weak = weak_from_this()] {
    if (const std::shared_ptr<CudaRank> rank = weak.lock()) rank->resources().posts->post(rank);
  };
}

void CudaRank::run_posted() noexcept {
  retry_pending_ = false;
  submit_to_sequencer();
}

// The sequencer refused the operation because the rank is too far ahead. The other ranks may also have operations that
// they had to defer, so retry for some time. Returns false when that time has passed.
bool CudaRank::wait_for_others() {
  const auto now = std::chrono::steady_clock::now();
  if (!ahead_since_) ahead_since_ = now;
  if (now - *ahead_since_ > patience_with_others) return false;
  if (!std::exchange(retry_pending_, true)) resources_->posts->post(shared_from_this());
  return true;
}

// Aborts the communicator for all ranks because of the exception that is being handled. Returns the error with which it
// refuses operations from now on.
std::exception_ptr CudaRank::abort_all_ranks() noexcept {
  try {
    abort_pending(*communicator(), this);
  } catch (...) {
    return std::current_exception();
  }
}

void CudaRank::refuse_unsubmitted(const std::exception_ptr& refusal) noexcept {
  for (; !unsubmitted_.empty(); unsubmitted_.pop_front()) unsubmitted_.front().launch->cancel(refusal);
  rest_.reset();
}

}  // namespace cox::detail
