// NcclCommunicator: its registry, and what concerns communicators of several processes.
#include <coxswain/collectives/nccl/nccl_communicator.hpp>
#include <coxswain/collectives/nccl/nccl_exchange.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/world_process.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <source_location>
#include <utility>

namespace cox {

using detail::MarkScope;
using detail::NcclCreation;
using detail::NcclCreationPlan;
using detail::NcclExchange;

namespace {

// A process that is gone may have completed its part of operations that are still in flight here.
constexpr std::chrono::milliseconds last_completions_after{100};

/// The objects of find_or_create().
struct Registry {
  std::mutex mutex;
  std::map<CommunicatorNumber, std::weak_ptr<NcclCommunicator>> communicators;  // guarded by mutex

  static Registry& of_process() {
    static auto& registry = *new Registry;
    return registry;
  }

  /// Calls `visit(communicator)` for each one, without the lock. Does not allocate.
  template <class Visit>
  void for_each(Visit&& visit) {
    CommunicatorNumber last{};
    for (;;) {
      std::shared_ptr<NcclCommunicator> next;
      {
        const std::lock_guard lock(mutex);
        for (auto at = communicators.upper_bound(last); at != communicators.end() && next == nullptr; ++at) {
          last = at->first;
          next = at->second.lock();
        }
      }
      if (next == nullptr) return;
      visit(*next);
    }
  }
};

}  // namespace

std::shared_ptr<NcclCommunicator> NcclCommunicator::find_or_create(CommunicatorNumber number,
                                                                   const NcclDevices& devices,
                                                                   std::chrono::milliseconds timeout) {
  Registry& registry = Registry::of_process();
  const std::lock_guard lock(registry.mutex);
  std::erase_if(registry.communicators, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = registry.communicators.find(number); found != registry.communicators.end())
    if (auto existing = found->second.lock()) return existing;
  auto made = std::make_shared<NcclCommunicator>(devices, timeout);
  registry.communicators.insert_or_assign(number, made);
  return made;
}

// Creation
// --------------------------------------------------------------------------------------------------------------------

// Only the calls of NCCL need the other processes: contexts are opened before this process says that it is ready.
std::vector<NcclCreation::Comms> NcclCommunicator::create_part(std::shared_ptr<NcclDeviceResources>& opened) {
  const NcclWorldPart& world = *devices_.world;
  if (const std::string why = NcclCreation::why_not(); !why.empty())
    throw CollectiveError(CollectiveError::Kind::Unsupported, why, std::source_location());
  {
    const std::shared_ptr<void> quiesced = devices_.quiesce();
    opened = open_devices();
  }
  meet();
  struct EndMeeting {
    explicit EndMeeting(const NcclWorldPart& part) noexcept : of(part) {}
    EndMeeting(const EndMeeting&) = delete;
    EndMeeting& operator=(const EndMeeting&) = delete;
    ~EndMeeting() { of.end_meeting(); }
    const NcclWorldPart& of;
  } const meeting(world);
  begin_quiescence();
  const NcclCreationPlan plan = exchange_plan(*opened);
  name_ = std::make_unique<const std::string>(
      fmt::format("cox.{}.{}", static_cast<std::uint64_t>(world.number), world.communicator.epoch));
  const auto creation =
      std::make_shared<NcclCreation>(world.ranks, devices_.devices.world_size(), name_->c_str(), opened);
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) std::rethrow_exception(broken_);
    creation_ = creation;
  }
  try {
    creation->create(plan);
  } catch (...) {
    const auto abort_created = [&] {
      if (devices_.is_lost()) {  // they are leaked: see forget()
        static_cast<void>(creation->take());
        leak_name();
      } else {
        // The other processes need not have marked anything: no process has submitted an operation to NCCL before all
        // have created the communicators.
        creation->abort();
      }
    };
    abort_failed_creation(std::ref(abort_created), std::current_exception());
    end_creation();
    throw;
  }
  end_creation();
  return creation->take();
}

// Throws the reason why the communicators are not created.
void NcclCommunicator::meet() {
  devices_.world->meet([held = shared_from_this()](const std::exception_ptr& refusal) {
    const std::lock_guard lock(held->mutex_);
    held->met_ = refusal;
    held->changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  // Also if it was aborted: an operation that was released must be followed by end_meeting(). The leader answers.
  changed_.wait(lock, [this] { return met_.has_value(); });
  if (*met_ != nullptr) std::rethrow_exception(*met_);
}

// The process of rank 0 makes the id. NCCL then waits for the other ranks in a thread of that process.
NcclCreationPlan NcclCommunicator::exchange_plan(const NcclDeviceResources& opened) {
  const NcclWorldPart& world = *devices_.world;
  if (world.ranks.front() == 0) {
    const NcclCreationPlan plan{.id = NcclCreation::make_id(), .ctas = opened.ctas()};
    NcclExchange* const exchange = NcclExchange::of_process();
    if (exchange == nullptr)
      throw CollectiveError(CollectiveError::Kind::WorldGone, "this process has left its world",
                            std::source_location());
    exchange->share_plan(world.communicator, plan.encode());
    return plan;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return plan_.has_value() || aborted_; });
  if (aborted_) std::rethrow_exception(broken_);
  return *plan_;
}

void NcclCommunicator::end_creation() noexcept {
  const std::lock_guard lock(mutex_);
  creation_.reset();
}

// It was aborted while NCCL may have been creating the communicators: has the creating thread leave NCCL.
void NcclCommunicator::leave_creation(const std::exception_ptr& cause) noexcept {
  const auto leave = [this, cause] {
    std::shared_ptr<NcclCreation> creation;
    {
      const std::lock_guard lock(mutex_);
      creation = creation_;
    }
    if (creation == nullptr) return;  // NCCL was not entered, and will not be
    creation->cancel(cause);
    if (wait_for_nccl([this] { return state_ != State::Creating; }, [] {})) return;
    devices_.world->cannot_leave("NCCL does not return from the creation of " + devices_.devices.to_string() +
                                 ", which was aborted: " + describe_cause(cause));
  };
  try {
    const std::lock_guard lock(mutex_);
    start_helper("cox-nccl-leave", leave);
  } catch (...) {  // no thread: it is cancelled, but not watched
    const std::shared_ptr<NcclCreation> creation = [this] {
      const std::lock_guard lock(mutex_);
      return creation_;
    }();
    if (creation != nullptr) creation->cancel(cause);
  }
}

// Failures
// --------------------------------------------------------------------------------------------------------------------

// Has the other processes give it up, too.
void NcclCommunicator::give_up(const std::exception_ptr& cause) noexcept {
  devices_.world->refuse(cause);
  MarkScope::send_mark({devices_.world->communicator, std::nullopt}, 0, cause);
}

// Operations in flight get so much time to complete. DeviceEvents have no notification that ends with a deadline, so
// they are polled.
void NcclCommunicator::wait_for_completions(std::chrono::milliseconds at_most) noexcept {
  const Time deadline = std::chrono::steady_clock::now() + at_most;
  for (;;) {
    poll();
    std::unique_lock lock(mutex_);
    const Time now = std::chrono::steady_clock::now();
    if (aborted_ || !is_in_flight() || now >= deadline) return;
    changed_.wait_until(lock, std::min(deadline, now + std::chrono::milliseconds(1)));
  }
}

void NcclCommunicator::abort_on_helper_thread(const std::exception_ptr& cause,
                                              std::chrono::milliseconds patience) noexcept {
  try {
    run_on_helper_thread("cox-nccl-lose", [this, cause, patience] {
      wait_for_completions(patience);
      abort(cause);
    });
  } catch (...) {  // no thread
    abort(cause);
  }
}

// Returns false if it is not busy: then nothing is launched any more, and what another thread is launching is not
// added.
bool NcclCommunicator::refuse_unless_busy(const std::exception_ptr& why) noexcept {
  poll();
  const std::lock_guard lock(mutex_);
  if (state_ == State::Creating || is_in_flight()) return true;
  if (unusable_.load(std::memory_order_relaxed)) return false;
  broken_ = why;  // replaces the one of close(), which says less
  unusable_.store(true, std::memory_order_relaxed);
  return false;
}

void NcclCommunicator::receive_mark(const std::optional<TransferRanks>& transfer, std::uint64_t operation,
                                    const std::exception_ptr& why) noexcept {
  if (operation == 0) {
    abort(why);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !telling_; });  // another thread may have aborted it, and be marking
    return;
  }
  const Lane* lane = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(lanes_, transfer, &Lane::transfer_);
    if (found != lanes_.end()) lane = &*found;
  }
  if (lane == nullptr) return;
  for (const Lane::Rank& rank : lane->ranks_)
    devices_.world->mark(lane->number_, operation, why, detail::local_name(rank.device, own_process()));
}

// Progress
// --------------------------------------------------------------------------------------------------------------------

void NcclCommunicator::note_refused(Lane& lane, std::size_t rank, std::uint64_t sequence) noexcept {
  note_ended(lane, rank, {&sequence, 1});
}

void NcclCommunicator::note_ended(Lane& lane, std::size_t rank, std::span<const std::uint64_t> sequences) noexcept {
  if (!devices_.world) return;
  try {
    if (const auto last = lane.ended_[rank].note(sequences))
      devices_.world->ended(lane.number_, lane.ranks_[rank].in_sequence, *last);
  } catch (...) {  // no memory: the leader takes them for operations in flight
  }
}

// What happens in the world
// --------------------------------------------------------------------------------------------------------------------

// Returns whether there is one.
bool NcclCommunicator::for_one(const SharedCommunicator& communicator,
                               const std::function<void(NcclCommunicator&)>& visit) {
  bool found = false;
  Registry::of_process().for_each([&](NcclCommunicator& each) {
    if (!each.devices_.world || each.devices_.world->communicator != communicator) return;
    found = true;
    visit(each);
  });
  return found;
}

void NcclCommunicator::receive_plan(const SharedCommunicator& communicator, const NcclCreationPlan& plan) {
  static_cast<void>(for_one(communicator, [&](NcclCommunicator& each) {
    const std::lock_guard lock(each.mutex_);
    each.plan_ = plan;
    each.changed_.notify_all();
  }));
}

void NcclCommunicator::receive_mark(const SharedSequence& sequence, std::uint64_t operation,
                                    const std::exception_ptr& why, UniqueFunction<void()> noted) {
  const auto shared = std::make_shared<UniqueFunction<void()>>(std::move(noted));
  const bool found = for_one(sequence.communicator, [&](NcclCommunicator& each) {
    const auto mark = [&each, transfer = sequence.transfer, operation, why, shared] {
      MarkScope scope;
      each.receive_mark(transfer, operation, why);
      scope.when_noted([shared] { (*shared)(); });
    };
    try {
      each.run_on_helper_thread("cox-nccl-mark", mark);
    } catch (...) {  // no thread
      mark();
    }
  });
  if (!found) (*shared)();
}

void NcclCommunicator::lose_process(std::uint16_t process, const std::exception_ptr& why) {
  Registry::of_process().for_each([&](NcclCommunicator& each) {
    const auto belongs = [process](DeviceId device) { return device.process == process + 1; };
    if (each.devices_.world && std::ranges::any_of(each.devices_.devices.devices(), belongs))
      each.abort_on_helper_thread(why, last_completions_after);
  });
}

void NcclCommunicator::lose_world(const std::exception_ptr& why, bool only_busy) {
  Registry::of_process().for_each([&](NcclCommunicator& each) {
    if (each.devices_.world && (!only_busy || each.refuse_unless_busy(why))) each.abort_on_helper_thread(why, {});
  });
}

}  // namespace cox
