#include <coxswain/collectives/nccl/nccl_communicator.hpp>

#include <coxswain/collectives/nccl/nccl_calls.hpp>
#include <coxswain/collectives/nccl/nccl_try.hpp>
#include <coxswain/collectives/watch/deadline_watch.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/device_handle/thread/blocked_signals.hpp>
#include <coxswain/runtime/base/thread_name.hpp>
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

namespace {

// After a failure a launch may hang until NCCL has been aborted, so this replaces patience_with_launches.
constexpr std::chrono::seconds patience_after_failure{1};

// How long the first wait for a moment without half launched operations holds up all other launches. Each wait after it
// takes twice as long, up to the longest one: a device may have a queue of released operations that takes some time to
// be launched.
constexpr std::chrono::milliseconds first_quiescence_attempt{100};
constexpr std::chrono::milliseconds longest_quiescence_attempt{1000};

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
    const detail::BlockedSignals blocked;
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

// As ncclCommInitAll, which takes no configuration.
void NcclCommunicator::init_all(std::vector<NcclComm>& natives, const NcclDeviceResources& opened) const {
  const int ranks = static_cast<int>(natives.size());
  detail::NcclConfig config = detail::launch_config(opened.ctas(), nullptr);
  if (config.max_ctas == detail::NcclConfig::undefined) {
    COX_NCCL_TRY(nullptr, init_all(natives.data(), ranks, devices_.ordinals.data()));
    return;
  }
  const detail::NcclUniqueId id = NcclCreation::make_id();
  detail::in_nccl_group(nullptr, [&] {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      const std::shared_ptr<void> current = opened.make_current(at);
      COX_NCCL_TRY(nullptr, init_rank(&natives[at], ranks, id, rank, &config));
    }
  });
}

// All ranks belong to this process.
std::vector<NcclCreation::Comms> NcclCommunicator::create_all(const NcclDeviceResources& opened) {
  std::vector<NcclComm> natives(devices_.ordinals.size());
  std::vector<NcclCreation::Comms> created(natives.size());
  try {
    init_all(natives, opened);
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

}  // namespace cox
