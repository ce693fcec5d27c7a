#include <coxswain/collectives/nccl/nccl_communicator.hpp>

#include <coxswain/collectives/nccl/nccl_calls.hpp>
#include <coxswain/collectives/nccl/nccl_exchange.hpp>
#include <coxswain/collectives/nccl/nccl_try.hpp>
#include <coxswain/collectives/watch/deadline_watch.hpp>
#include <coxswain/collectives/watch/device_activity.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/base/thread_name.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/world_process.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

namespace cox {

using detail::InFlightOperations;
using detail::NcclComm;
using detail::NcclCreation;
using detail::NcclResult;

namespace {

// The time that NCCL is allowed at least for creating communicators. It takes tenths of a second, but may first wait
// for running kernels.
constexpr std::chrono::seconds patience_with_nccl{60};

// After a failure a launch may hang until NCCL has been aborted, so this replaces patience_with_launches.
constexpr std::chrono::seconds patience_after_failure{1};

// How long the first wait for a moment without half launched operations holds up all other launches. Each wait after it
// takes twice as long, up to the longest one: a device may have a queue of released operations that takes some time to
// be launched.
constexpr std::chrono::milliseconds first_quiescence_attempt{100};
constexpr std::chrono::milliseconds longest_quiescence_attempt{1000};

std::exception_ptr error(CollectiveError::Kind kind, const std::string& what, std::source_location site = {},
                         const std::exception_ptr& cause = nullptr) {
  return std::make_exception_ptr(CollectiveError(kind, what, site, cause));
}

}  // namespace

NcclCommunicator::NcclCommunicator(NcclDevices devices, std::chrono::milliseconds timeout)
    : devices_(std::move(devices)), timeout_(timeout) {
  std::vector<Lane::Rank> ranks;
  const std::span<const DeviceId> all = devices_.devices.devices();
  for (std::size_t rank = 0; rank < devices_.ordinals.size(); ++rank) {
    const std::size_t place = devices_.world ? static_cast<std::size_t>(devices_.world->ranks[rank]) : rank;
    ranks.push_back({all[place], place});
  }
  add_lane(devices_.world ? devices_.world->number : CommunicatorNumber{}, std::nullopt, std::move(ranks),
           devices_.on_completed);
}

// Under the lock, except in the constructor.
NcclCommunicator::Lane& NcclCommunicator::add_lane(CommunicatorNumber number, std::optional<TransferRanks> transfer,
                                                   std::vector<Lane::Rank> ranks,
                                                   InFlightOperations::CompletedCallback on_completed) {
  if (!devices_.world) return lanes_.emplace_back(number, transfer, std::move(ranks), std::move(on_completed));
  const auto self = std::make_shared<Lane*>(nullptr);
  Lane& lane = lanes_.emplace_back(
      number, transfer, std::move(ranks),
      [this, self, completed = std::move(on_completed)](std::size_t rank, std::span<const std::uint64_t> sequences) {
        completed(rank, sequences);
        note_ended(**self, rank, sequences);
      });
  return *(*self = &lane);
}

NcclCommunicator::Lane& NcclCommunicator::transfers(CommunicatorNumber number, TransferRanks transfer, Lane::Rank rank,
                                                    InFlightOperations::CompletedCallback on_completed) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(lanes_, number, &Lane::number_);
  if (found != lanes_.end()) return *found;
  return add_lane(number, transfer, {rank}, std::move(on_completed));
}

// Threads
// --------------------------------------------------------------------------------------------------------------------

void NcclCommunicator::run_on_helper_thread(const char* name, UniqueFunction<void()> function) {
  const std::lock_guard lock(mutex_);
  start_helper(name, std::move(function));
}

// Under the lock. Each mark of another process starts a thread, so those that are done must be joined now and then. The
// new thread does that: the end of a thread may take long, and the lock must not be held for long.
void NcclCommunicator::start_helper(const char* name, UniqueFunction<void()> function) {
  const auto done = std::make_shared<std::list<HelperThread>>();
  for (auto next = helpers_.begin(); next != helpers_.end();) {
    const auto at = next++;
    if (at->done) done->splice(done->end(), helpers_, at);
  }
  HelperThread& started = helpers_.emplace_back();
  try {
    started.thread =
        std::thread([name, function = std::move(function), &started, done, held = shared_from_this()]() mutable {
          for (HelperThread& each : *done) each.thread.join();
          detail::name_this_thread(name);
          function();
          function.reset();
          const std::lock_guard lock(held->mutex_);
          started.done = true;
          held->changed_.notify_all();
        });
  } catch (...) {
    helpers_.pop_back();
    helpers_.splice(helpers_.end(), *done);
    throw;
  }
}

// There is no reference left, so the helper threads have finished. The one that released the last reference may run
// this.
NcclCommunicator::~NcclCommunicator() {
  detail::DeadlineWatch<NcclCommunicator>::of_process().remove(*this);
  for (HelperThread& each : helpers_) {
    if (each.thread.get_id() == std::this_thread::get_id()) {
      each.thread.detach();
    } else {
      each.thread.join();
    }
  }
}

// Adds the object to the watch, which checks it until a check finds nothing in flight. Under the lock.
void NcclCommunicator::watch() {
  if (watched_) return;
  detail::DeadlineWatch<NcclCommunicator>::of_process().add(*this, std::chrono::steady_clock::now() + timeout_ / 2);
  watched_ = true;
}

// Creation
// --------------------------------------------------------------------------------------------------------------------

bool NcclCommunicator::devices_open(UniqueFunction<void()> callback) {
  return devices_open() || reach(State::Open, std::move(callback));
}

bool NcclCommunicator::created(UniqueFunction<void()> callback) {
  return created() || reach(State::Ready, std::move(callback));
}

// Returns whether the goal is reached, or never will be. Otherwise the callback is called when it is; a helper thread
// is started unless one is running.
bool NcclCommunicator::reach(State goal, UniqueFunction<void()> callback) {
  const std::lock_guard lock(mutex_);
  const bool opens = goal == State::Open;
  if (broken_ != nullptr || (opens ? devices_open() : state_ >= State::Ready)) return true;
  auto& callbacks = opens ? opening_callbacks_ : creation_callbacks_;
  callbacks.push_back(std::move(callback));
  if (is_creating()) return false;
  try {
    watch();
    start_helper("cox-nccl-create", [this, goal] { create(goal); });
  } catch (...) {
    callbacks.pop_back();
    throw;
  }
  creating_since_ = Time::max();
  state_ = opens ? State::Opening : State::Creating;
  return false;
}

void NcclCommunicator::create(State goal) noexcept {
  std::exception_ptr failure;
  std::shared_ptr<NcclDeviceResources> opened = this->opened();
  const bool was_open = opened != nullptr;
  std::vector<std::unique_ptr<Comm>> comms;
  try {
    detail::name_this_thread("nccl");  // NCCL's threads inherit this name
    make(goal, opened, comms);
  } catch (...) {
    failure = std::current_exception();
    comms.clear();
    opened.reset();  // before another thread sees the state Gone
    if (devices_.world) {
      std::unique_lock lock(mutex_);
      const bool is_given_up = aborted_;  // by abort()
      lock.unlock();
      if (!is_given_up) give_up(failure);
    }
  }
  std::shared_ptr<void> quiesced;
  std::vector<UniqueFunction<void()>> opening;
  std::vector<UniqueFunction<void()>> creation;
  bool goes_on = false;
  {
    const std::lock_guard lock(mutex_);
    quiesced.swap(quiesced_);
    if (failure != nullptr) {
      set_broken(failure);
      unusable_.store(true, std::memory_order_relaxed);
    }
    if (failure == nullptr && !was_open) {
      opened_.swap(opened);
      comms_.swap(comms);
    }
    state_ = failure == nullptr ? goal : was_open ? State::Open : State::Gone;
    if (state_ != State::Gone && broken_ != nullptr) begin_dismantling();  // failed, aborted or closed during creation
    devices_open_.store(true, std::memory_order_release);
    opening.swap(opening_callbacks_);
    goes_on = state_ == State::Open && !creation_callbacks_.empty();
    if (goes_on) {
      creating_since_ = Time::max();
      state_ = State::Creating;
    } else if (goal == State::Ready || broken_ != nullptr) {
      created_.store(true, std::memory_order_release);
      creation.swap(creation_callbacks_);
    }
    changed_.notify_all();
  }
  quiesced.reset();
  for (auto& then : opening) then();
  for (auto& then : creation) then();
  if (goes_on) create(State::Ready);
}

// Opens the devices unless `opened` has them, and creates NCCL's communicators if that is the goal. Of devices that
// were open before, they are added to comms_.
void NcclCommunicator::make(State goal, std::shared_ptr<NcclDeviceResources>& opened,
                            std::vector<std::unique_ptr<Comm>>& comms) {
  const bool was_open = opened != nullptr;
  if (!was_open)
    for (std::size_t rank = 0; rank < devices_.ordinals.size(); ++rank) comms.push_back(std::make_unique<Comm>());
  std::vector<NcclCreation::Comms> created(devices_.ordinals.size());
  // Allocated before, so that nothing fails when NCCL has created the communicators.
  std::vector<std::shared_ptr<std::shared_ptr<NcclDeviceResources>>> counts;
  while (counts.size() < comms.size()) counts.push_back(std::make_shared<std::shared_ptr<NcclDeviceResources>>());
  if (devices_.world) {
    created = create_part(opened);
  } else {
    begin_quiescence();
    if (!was_open) opened = open_devices();
    if (goal == State::Ready) created = create_all(*opened);
  }
  for (std::size_t rank = 0; rank < created.size(); ++rank) {
    Comm& comm = was_open ? *comms_[rank] : *comms[rank];
    const std::lock_guard in_use(comm.in_use);
    comm.native = created[rank].child;
    comm.parent = created[rank].parent;
    if (was_open) continue;
    *counts[rank] = opened;
    comm.opened = {std::move(counts[rank]), opened.get()};
  }
}

// All ranks belong to this process.
std::vector<NcclCreation::Comms> NcclCommunicator::create_all(const NcclDeviceResources& opened) {
  std::vector<NcclComm> natives(devices_.ordinals.size());
  std::vector<NcclCreation::Comms> created(natives.size());
  try {
    COX_NCCL_TRY(nullptr, init_all(natives.data(), static_cast<int>(natives.size()), devices_.ordinals.data()));
    detail::connect_ranks(natives, opened);
  } catch (...) {
    const auto abort_created = [&] {
      for (NcclComm native : natives)  // those that were created before the failure
        if (native != nullptr && !devices_.is_lost()) COX_NCCL_CHECK(nullptr, abort(native));
    };
    abort_failed_creation(std::ref(abort_created), std::current_exception());
    throw;
  }
  for (std::size_t rank = 0; rank < natives.size(); ++rank) created[rank].child = natives[rank];
  return created;
}

// From here on no operation is launched on some devices but not on others, until the communicators have been created or
// aborted. Throws what devices_.quiesce() throws, and broken_ if it was aborted during that call. The time that NCCL
// and the driver may take begins then.
void NcclCommunicator::begin_quiescence() {
  std::shared_ptr<void> quiesced = devices_.quiesce();
  const std::lock_guard lock(mutex_);
  if (aborted_) std::rethrow_exception(broken_);
  creating_since_ = std::chrono::steady_clock::now();
  quiesced_.swap(quiesced);
}

// Before calls that free memory or unload code, in NCCL or here: they may wait for running kernels, while they hold
// locks of the driver (T1). Null if there is no such moment in time: the calls are made anyway. Null also after a GPU
// fault, and if the communicators are aborted although nothing had failed before: the caller checks both again.
// After an attempt in vain launches may go on for as long as it took.
std::shared_ptr<void> NcclCommunicator::quiesce_to_end(bool has_failed) noexcept {
  const std::chrono::milliseconds patience = has_failed ? patience_after_failure : patience_with_launches;
  try {
    std::chrono::milliseconds left = patience;
    for (auto attempt = first_quiescence_attempt; left.count() > 0;) {
      if (devices_.is_lost()) return nullptr;
      const Time begun = std::chrono::steady_clock::now();
      if (auto quiesced = devices_.try_quiesce(std::min(attempt, left))) return quiesced;
      const auto took = std::chrono::floor<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
      left -= attempt;
      const std::chrono::milliseconds pause = std::min(took, left);
      left -= took;
      attempt = std::min(2 * attempt, longest_quiescence_attempt);
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, pause, [&] { return aborted_ && !has_failed; })) return nullptr;
    }
    log::write(LogSubsystem::Collectives, LogLevel::Warn, [&] {
      return fmt::format(
          "memory of communicator {} is freed although no moment was found within {} ms in which no collective was "
          "launched on some GPUs only and no communicator was being created",
          devices_.devices.to_string(), patience.count());
    });
  } catch (...) {  // no memory
  }
  return nullptr;
}

// Calls `abort`, which aborts what NCCL has created. NcclCommunicator::abort() may have released what
// begin_quiescence() had got, since NCCL might not have returned. From now on only end_in_time() and
// failure_of_creation() do that.
void NcclCommunicator::abort_failed_creation(const std::function<void()>& abort,
                                             const std::exception_ptr& cause) noexcept {
  bool quiesces = false;
  {
    const std::lock_guard lock(mutex_);
    creation_failed_ = true;
    quiesces = quiesced_ == nullptr;
  }
  if (quiesces) keep_quiescence(quiesce_to_end(true));
  end_in_time(abort, [&] { report_stuck_abort(cause); });
}

std::shared_ptr<void> NcclCommunicator::take_quiescence() noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(quiesced_, nullptr);
}

void NcclCommunicator::keep_quiescence(std::shared_ptr<void> quiesced) noexcept {
  const std::lock_guard lock(mutex_);
  quiesced_.swap(quiesced);  // there was none
}

// Devices
// --------------------------------------------------------------------------------------------------------------------

std::shared_ptr<NcclDeviceResources> NcclCommunicator::open_devices() {
  std::unique_ptr<NcclDeviceResources> opened = devices_.open();
  {
    const std::lock_guard lock(mutex_);
    devices_held_ = true;
  }
  return {opened.release(), [held = shared_from_this()](NcclDeviceResources* devices) { held->free_devices(devices); }};
}

// There is no reference left. Launches and threads that report completions have references, too, so this may be any
// thread: it must not wait. The helper thread is joined with the others.
void NcclCommunicator::free_devices(NcclDeviceResources* devices) noexcept {
  std::shared_ptr<void> quiesced;  // released outside the lock
  const std::lock_guard lock(mutex_);
  devices_held_ = false;
  changed_.notify_all();
  quiesced.swap(quiesced_);
  const bool has_failed = aborted_ || ended_without_quiescence_;  // which had all the patience already, in vain
  try {
    start_helper("cox-nccl-free", [this, devices, quiesced, has_failed]() mutable {
      if (quiesced == nullptr) quiesced = quiesce_to_end(has_failed);
      if (quiesced == nullptr && !has_failed) quiesced = quiesce_to_end(true);  // aborted meanwhile, or in vain
      delete devices;
    });
  } catch (...) {  // no thread: the devices are leaked
    report_task_error({devices_.devices.devices().front(), StreamId::current(), std::current_exception()});
  }
}

std::exception_ptr NcclCommunicator::broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

std::shared_ptr<NcclDeviceResources> NcclCommunicator::opened() const {
  const std::lock_guard lock(mutex_);
  return opened_;
}

// Under the lock. The first cause is kept.
void NcclCommunicator::set_broken(const std::exception_ptr& cause) noexcept {
  if (broken_ == nullptr) broken_ = cause;
}

// Launches
// --------------------------------------------------------------------------------------------------------------------

NcclCommunicator::LaunchLock NcclCommunicator::begin_launch(std::size_t rank) const {
  // Relaxed: it could also be set right after this check, so no order is needed.
  if (unusable_.load(std::memory_order_relaxed)) std::rethrow_exception(broken());
  Comm& comm = *comms_[rank];
  std::unique_lock in_use(comm.in_use);
  if (comm.opened == nullptr) std::rethrow_exception(broken());
  return {std::move(in_use), comm.native, comm.opened};
}

void NcclCommunicator::launch(const LaunchLock& lock, std::size_t rank, const NcclCalls& calls,
                              CUstream_st* stream) const {
  detail::launch_nccl_calls(lock.native, devices_.devices.world_size(), calls, lock.opened->scratch(rank), stream);
}

void NcclCommunicator::add(Lane& lane, std::size_t rank, std::span<std::shared_ptr<NcclLaunch>> launches,
                           std::uint64_t completed_before) {
  InFlightOperations::CompletedBatch completed(lane.in_flight_);
  const std::lock_guard lock(mutex_);
  if (unusable_.load(std::memory_order_relaxed)) std::rethrow_exception(broken_);
  watch();
  lane.in_flight_.add(rank, launches);
  lane.in_flight_.note_completed(rank, completed_before, completed);
  if (state_ == State::Dismantling) changed_.notify_all();
}

// Watching
// --------------------------------------------------------------------------------------------------------------------

// Calls `f(lane)` for each lane, without the lock.
template <class F>
void NcclCommunicator::for_each_lane(F&& f) noexcept {
  for (auto at = lanes_.begin();;) {  // the first one always exists
    f(*at);
    const std::lock_guard lock(mutex_);
    if (++at == lanes_.end()) return;
  }
}

// Under the lock.
bool NcclCommunicator::is_in_flight() const noexcept {
  return std::ranges::any_of(lanes_, [](const Lane& lane) { return !lane.in_flight_.empty(); });
}

// Asks the driver without the lock: a call may block while kernels run that wait for other processes, and the threads
// of the links need the lock.
void NcclCommunicator::poll() noexcept {
  for_each_lane([this](Lane& lane) {
    while (const auto oldest = this->oldest(lane)) {
      if (!oldest->has_ended()) return;
      InFlightOperations::CompletedBatch completed(lane.in_flight_);
      const std::lock_guard lock(mutex_);
      lane.in_flight_.pop(*oldest, completed);
    }
  });
}

// nullopt also without memory.
std::optional<InFlightOperations::Oldest> NcclCommunicator::oldest(const Lane& lane) const noexcept try {
  const std::lock_guard lock(mutex_);
  return lane.in_flight_.oldest();
} catch (...) {
  return std::nullopt;
}

std::optional<NcclCommunicator::Time> NcclCommunicator::check_deadlines(Time now) noexcept {
  std::exception_ptr failure = failure_of_creation(now);
  if (failure == nullptr) {
    poll();
    bool made = false;
    {
      const std::lock_guard lock(mutex_);
      made = state_ > State::Creating;
      // A creation is watched also when it was aborted: NCCL may not return from it.
      const bool creates = is_creating() && !creation_abandoned_;
      if (!creates && (aborted_ || !is_in_flight())) {
        watched_ = false;
        return std::nullopt;
      }
    }
    for_each_lane([&](Lane& lane) {
      if (failure == nullptr) failure = overdue(lane, now);
    });
    if (failure == nullptr && made) failure = failure_in_nccl();
  }
  if (failure != nullptr) {
    abort(failure);
    const std::lock_guard lock(mutex_);
    if (!is_creating() || creation_abandoned_) {
      watched_ = false;
      return std::nullopt;
    }
  }
  return now + std::clamp<std::chrono::milliseconds>(timeout_ / 16, std::chrono::milliseconds(1),
                                                     std::chrono::milliseconds(100));
}

// Returns null if nothing is created, or the creation may go on.
std::exception_ptr NcclCommunicator::failure_of_creation(Time now) noexcept {
  std::shared_ptr<void> quiesced;  // released outside the lock
  std::unique_lock lock(mutex_);
  if (!is_creating() || creation_abandoned_) return nullptr;
  lock.unlock();
  const bool is_lost = devices_.is_lost();
  lock.lock();
  if (!is_creating() || creation_abandoned_) return nullptr;
  const auto patience = std::max<std::chrono::milliseconds>(timeout_, patience_with_nccl);
  const bool is_overdue = creating_since_ != Time::max() && now - creating_since_ >= patience;
  if (!is_lost && !is_overdue) return nullptr;
  creation_abandoned_ = true;
  quiesced.swap(quiesced_);
  changed_.notify_all();
  try {
    if (is_lost)
      return error(CollectiveError::Kind::Backend,
                   fmt::format("the process has lost its GPUs while {} was created", devices_.devices.to_string()));
    return error(CollectiveError::Kind::Timeout,
                 fmt::format("{} the communicator {} after {} ms",
                             state_ == State::Creating ? "NCCL has not created" : "the driver has not opened",
                             devices_.devices.to_string(), patience.count()));
  } catch (...) {
    return std::current_exception();
  }
}

// Returns null if the oldest operation of the lane is not overdue.
std::exception_ptr NcclCommunicator::overdue(Lane& lane, Time now) noexcept try {
  const auto oldest = this->oldest(lane);
  if (!oldest) return nullptr;
  const auto arrivals = oldest->arrivals();
  const auto arrived = static_cast<std::size_t>(std::ranges::count(arrivals, true));
  {
    const std::lock_guard lock(mutex_);
    if (!lane.in_flight_.is_overdue(*oldest, arrived, timeout_, now)) return nullptr;
  }
  const NcclOperation& operation = *oldest->operation;
  const CollectiveRequest& request = operation.summary.first;
  std::string text =
      fmt::format("operation {}, {}, was submitted by all ranks, but has not {} after {} ms", operation.sequence.load(),
                  to_string(operation.summary), arrived < arrivals.size() ? "started" : "completed", timeout_.count());
  for (std::size_t rank = 0; rank < arrivals.size(); ++rank) {
    if (arrivals[rank]) continue;
    const DeviceId device = lane.ranks_[rank].device;
    text += fmt::format("; earlier work on {} has not completed, its device thread: {}", device.to_string(),
                        device_activity(detail::local_name(device, own_process())));
  }
  return error(CollectiveError::Kind::Timeout, text, request.caller.site);
} catch (...) {
  return std::current_exception();
}

// Returns null if NCCL reports no error.
std::exception_ptr NcclCommunicator::failure_in_nccl() noexcept {
  if (devices_.is_lost()) return nullptr;  // the GPU fault is reported instead
  for (const auto& comm : comms_) {
    const std::unique_lock in_use(comm->in_use, std::try_to_lock);
    if (!in_use || comm->native == nullptr) continue;
    NcclResult result = NcclResult::Success;
    const NcclResult asked = detail::nccl().async_error(comm->native, &result);
    if (asked != NcclResult::Success) result = asked;
    if (result == NcclResult::Success || result == NcclResult::InProgress) continue;
    try {
      detail::throw_nccl_error(result, comm->native, "async_error", std::source_location::current());
    } catch (...) {
      return std::current_exception();
    }
  }
  return nullptr;
}

// Abort and destruction
// --------------------------------------------------------------------------------------------------------------------

void NcclCommunicator::abort(const std::exception_ptr& cause) noexcept {
  std::vector<UniqueFunction<void()>> opening;
  std::vector<UniqueFunction<void()>> creation;
  std::shared_ptr<void> quiesced;
  bool was_creating = false;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_ || state_ == State::Gone) return;
    aborted_ = telling_ = true;
    broken_ = cause;  // replaces the one of close(), which says less
    unusable_.store(true, std::memory_order_relaxed);
    if (is_creating()) {  // NCCL may never return from it
      was_creating = true;
      devices_open_.store(true, std::memory_order_release);
      created_.store(true, std::memory_order_release);
      opening.swap(opening_callbacks_);
      creation.swap(creation_callbacks_);
      if (!creation_failed_) quiesced.swap(quiesced_);
      changed_.notify_all();
    }
    for (Lane& lane : lanes_) lane.in_flight_.abandon(lane.abandoned_);
    is_noted_ = false;
  }
  quiesced.reset();
  detail::MarkScope marks;
  // No lock: no other thread uses these operations while telling_ is set. No allocation: if it failed, a rank would
  // not be notified.
  for_each_lane([&](Lane& lane) {
    for (const auto& operation : lane.abandoned_) {
      for (NcclOperation::RankState& rank : operation->ranks) {
        const std::shared_ptr<NcclLaunch> launch = std::move(rank.launch);  // it may refer to this object
        if (launch != nullptr && !rank.completion->reached()) launch->fail(cause);
      }
    }
  });
  if (devices_.world) give_up(cause);
  if (was_creating && devices_.world) leave_creation(cause);
  for (auto& then : opening) then();
  for (auto& then : creation) then();
  marks.when_noted([held = shared_from_this()] {
    std::shared_ptr<NcclDeviceResources> in_flight;
    {
      const std::lock_guard lock(held->mutex_);
      held->is_noted_ = true;
      // Kernels of our own that wait for other ranks end now, since NCCL may never return from the creation.
      if (held->is_creating()) in_flight = held->opened_;
      held->changed_.notify_all();
    }
    if (in_flight != nullptr) in_flight->abort();
  });
  const std::lock_guard lock(mutex_);
  telling_ = false;
  changed_.notify_all();
  begin_dismantling();
}

void NcclCommunicator::close() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    if (broken_ == nullptr)
      set_broken(error(CollectiveError::Kind::Aborted, "communicator " + devices_.devices.to_string() + " is closed"));
  } catch (...) {
    set_broken(std::current_exception());
  }
  begin_dismantling();
}

// Under the lock, after broken_ was set. Does nothing during creation: create() calls it again at its end.
void NcclCommunicator::begin_dismantling() noexcept {
  if (state_ == State::New) state_ = State::Gone;
  if (state_ != State::Open && state_ != State::Ready) return;
  state_ = State::Dismantling;
  try {
    start_helper("cox-nccl-end", [this] { dismantle(); });
  } catch (...) {  // no thread: the communicators are leaked
    leak_name();
    report_task_error({devices_.devices.devices().front(), StreamId::current(), std::current_exception()});
  }
}

// Whether an operation is in flight: it has not completed, or other ranks have not launched it yet. Waits for it, 1 ms
// at most.
bool NcclCommunicator::wait_for_launched() noexcept {
  const Time soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
  poll();
  std::shared_ptr<DeviceEvent> end;
  for_each_lane([&](const Lane& lane) {
    const auto oldest = this->oldest(lane);
    if (!oldest || end != nullptr) return;
    for (const NcclOperation::RankState& rank : oldest->ranks)
      if (rank.completion != nullptr && !rank.completion->reached()) end = rank.completion;
  });
  {
    std::unique_lock lock(mutex_);
    if (aborted_ || !is_in_flight()) return false;
    if (end == nullptr) changed_.wait_until(lock, soon);
  }
  if (end != nullptr) static_cast<void>(end->wait_until(soon));
  return true;
}

void NcclCommunicator::dismantle() noexcept {
  while (wait_for_launched()) {
  }
  end_native();
  const bool ended = wait_for_abandoned();
  std::shared_ptr<NcclDeviceResources> opened;
  {
    const std::lock_guard lock(mutex_);
    opened.swap(opened_);
  }
  if (!ended) static_cast<void>(new std::shared_ptr(opened));  // leaked: operations in flight use it
  opened.reset();
  take_quiescence().reset();  // unless free_devices() has it: then others use the devices
  std::unique_lock lock(mutex_);
  const Time deadline = std::chrono::steady_clock::now() + patience_with_kernels;
  changed_.wait_until(lock, deadline, [&] { return !devices_held_ || !ended; });
  state_ = State::Gone;
  changed_.notify_all();
}

// Waits until an abort has been noted, and returns whether there was one. The ranks of all processes poison their
// output before the kernels end.
bool NcclCommunicator::wait_until_noted() noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !aborted_ || (!telling_ && is_noted_); });
  return aborted_;
}

// Aborts or destroys NCCL's communicators. While it waits for a moment to destroy them, a GPU may fault, and a rank
// that has launched a kernel which the others will not launch may abort the communicators: destroying them would wait
// for that kernel. After a normal end the launches of others are still held up, for free_devices().
void NcclCommunicator::end_native() noexcept {
  for (;;) {
    const bool is_aborted = wait_until_noted();
    if (devices_.is_lost()) {
      opened()->abort();  // kernels on GPUs that have not failed wait for those that have
      return forget();
    }
    if (is_aborted) {
      end_in_time([this] { abort_native(); }, [this] { report_stuck_abort(broken()); });
      return take_quiescence().reset();
    }
    // If nothing can be launched any more, a rank may be launching a kernel that the others will not launch.
    if (unusable_.load(std::memory_order_relaxed)) opened()->abort();
    std::shared_ptr<void> quiesced = quiesce_to_end(false);
    if (devices_.is_lost()) continue;
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) continue;
      ended_without_quiescence_ = quiesced == nullptr;
      quiesced_.swap(quiesced);
    }
    return end_in_time([this] { destroy(); }, [this] { report_stuck_end("NCCL does not destroy "); });
  }
}

// Calls `end`, which calls NCCL, on a thread of its own. If NCCL does not return in time, other communicators go on,
// and `report_stuck` is called once.
void NcclCommunicator::end_in_time(const std::function<void()>& end,
                                   const std::function<void()>& report_stuck) noexcept {
  bool has_ended = false;  // guarded by mutex_
  std::thread ending;
  try {
    ending = std::thread([&] {
      end();
      const std::lock_guard lock(mutex_);
      has_ended = true;
      changed_.notify_all();
    });
  } catch (...) {  // no thread: it is not watched
    return end();
  }
  for (bool is_reported = false;; is_reported = true) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, devices_.leave_within, [&] { return has_ended; })) break;
    }
    take_quiescence().reset();
    if (!is_reported) report_stuck();
  }
  ending.join();
}

// NCCL has not returned in time. A process that other processes wait for cannot go on.
void NcclCommunicator::report_stuck_abort(const std::exception_ptr& cause) noexcept {
  constexpr const char* text = "NCCL does not abort ";
  if (!devices_.world) return report_stuck_end(text);
  devices_.world->cannot_leave(text + devices_.devices.to_string() + ", which was aborted: " + describe_cause(cause));
}

void NcclCommunicator::report_stuck_end(const char* text) noexcept {
  log::write(LogSubsystem::Collectives, LogLevel::Warn, [&] {
    return fmt::format("{}{} within {} ms: other communicators are used meanwhile", text, devices_.devices.to_string(),
                       devices_.leave_within.count());
  });
}

// Revokes all communicators first, which neither blocks for long nor frees memory: launches in progress, which hold
// in_use, then return.
void NcclCommunicator::abort_native() noexcept {
  opened()->abort();
  if (detail::nccl().revoke != nullptr)
    for (const auto& comm : comms_)
      if (comm->native != nullptr) COX_NCCL_CHECK(comm->native, revoke(comm->native, 0));
  keep_quiescence(quiesce_to_end(true));
  if (devices_.is_lost()) return forget();
  std::vector<std::thread> threads;
  const auto abort_one = [this](Comm& comm) {
    const std::lock_guard in_use(comm.in_use);
    if (devices_.is_lost()) return;  // since it waited for a launch
    for (NcclComm native : take_natives(comm))
      if (native != nullptr) COX_NCCL_CHECK(nullptr, abort(native));
  };
  for (const auto& comm : comms_) {
    try {
      threads.emplace_back(abort_one, std::ref(*comm));
    } catch (...) {
      abort_one(*comm);
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (devices_.is_lost()) forget();
}

// Whether the abandoned operations have completed. They should do so at once; waits for them up to
// patience_with_kernels.
bool NcclCommunicator::wait_for_abandoned() noexcept {
  const Time deadline = std::chrono::steady_clock::now() + patience_with_kernels;
  bool ended = true;
  for_each_lane([&](Lane& lane) {
    InFlightOperations::Operations abandoned;
    {
      const std::lock_guard lock(mutex_);
      abandoned.swap(lane.abandoned_);
    }
    for (const auto& operation : abandoned)
      for (const NcclOperation::RankState& rank : operation->ranks)
        ended = ended && (rank.completion == nullptr || rank.completion->wait_until(deadline));
  });
  return ended;
}

// The parent has no operations, and NCCL requires more of those that destroy a non-blocking communicator: it is
// aborted.
void NcclCommunicator::destroy() noexcept {
  for (const auto& comm : comms_) {
    const std::lock_guard in_use(comm->in_use);
    if (devices_.is_lost()) break;
    const auto [native, parent] = take_natives(*comm);
    if (native != nullptr) COX_NCCL_CHECK(nullptr, destroy(native));
    if (parent != nullptr) COX_NCCL_CHECK(nullptr, abort(parent));
  }
  if (!devices_.is_lost()) return;
  opened()->abort();
  forget();
}

// After a GPU fault. NCCL's communicators are leaked, because NCCL would wait for its kernels, which never end.
void NcclCommunicator::forget() noexcept {
  leak_name();
  for (const auto& comm : comms_) {
    const std::lock_guard in_use(comm->in_use);
    static_cast<void>(take_natives(*comm));
  }
}

// NCCL may read the name at any time, as long as its communicator exists. So the name of a leaked communicator is never
// freed; it stays reachable, so that leak checkers do not report it.
void NcclCommunicator::leak_name() noexcept {
  try {
    static std::mutex mutex;
    static auto* const leaked = new std::vector<std::unique_ptr<const std::string>>();
    const std::lock_guard lock(mutex);
    leaked->push_back(std::move(name_));
  } catch (...) {
    static_cast<void>(name_.release());
  }
}

// With in_use held. After this, begin_launch() throws.
std::array<NcclComm, 2> NcclCommunicator::take_natives(Comm& comm) noexcept {
  comm.opened.reset();  // opened_ is released later
  return {std::exchange(comm.native, nullptr), std::exchange(comm.parent, nullptr)};
}

bool NcclCommunicator::wait_until_destroyed(Time deadline) noexcept {
  const auto has_ended = [this] { return state_ == State::Gone && std::ranges::all_of(helpers_, &HelperThread::done); };
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      // Does not wait for a creation that hangs in NCCL.
      const bool gone =
          changed_.wait_until(lock, deadline, [&] { return is_creating() ? creation_abandoned_ : has_ended(); });
      if (!gone) return false;
      if (is_creating()) return true;  // the thread holds this object until NCCL returns
    }
    const std::lock_guard joining(joining_);  // so that each of two callers returns after all are joined
    std::list<HelperThread> finished;
    {
      const std::lock_guard lock(mutex_);
      if (!has_ended()) continue;  // another helper was started
      finished.swap(helpers_);
    }
    for (HelperThread& each : finished) each.thread.join();
    return true;
  }
}

}  // namespace cox
