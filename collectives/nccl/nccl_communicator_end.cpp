// NcclCommunicator: aborting and destroying NCCL's communicators.

#include <coxswain/collectives/nccl/nccl_communicator.hpp>
#include <coxswain/collectives/nccl/nccl_exchange.hpp>
#include <coxswain/collectives/nccl/nccl_try.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/device_handle/thread/blocked_signals.hpp>
#include <coxswain/runtime/async/device_event_set.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

namespace cox {

using detail::InFlightOperations;
using detail::NcclComm;

namespace {

// Null also without memory.
std::shared_ptr<DeviceEvent> event_after(const SmallVector<std::shared_ptr<DeviceEvent>, 1>& dependencies) noexcept
    try {
  if (dependencies.empty()) return nullptr;
  return DeviceEventSet::make(std::vector<std::shared_ptr<DeviceEvent>>(dependencies.begin(), dependencies.end()));
} catch (...) {
  return nullptr;
}

}  // namespace

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
  // No lock: no other thread uses these operations while telling_ is set. No allocation that may fail: a rank would not
  // be notified.
  for_each_lane([&](Lane& lane) {
    for (const auto& operation : lane.abandoned_) {
      for (NcclOperation::RankState& rank : operation->ranks) {
        const std::shared_ptr<NcclLaunch> launch = std::move(rank.launch);  // it may refer to this object
        if (launch == nullptr || rank.completion->reached()) continue;
        rank.dependencies = event_after(launch->dependencies);
        launch->fail(cause);
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
      set_broken(std::make_exception_ptr(CollectiveError(
          CollectiveError::Kind::Aborted, "communicator " + devices_.devices.to_string() + " is closed", {})));
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
    const detail::BlockedSignals blocked;
    ending = std::thread([&] {
      end();
      const std::lock_guard lock(mutex_);
      has_ended = true;
      changed_.notify_all();
    });
  } catch (...) {  // no thread: it is not watched
    return end();
  }
  const auto is_slow = [this] { take_quiescence().reset(); };
  for (bool is_reported = false; !wait_for_nccl([&] { return has_ended; }, is_slow); is_reported = true)
    if (!is_reported) report_stuck();
  ending.join();
}

// Waits until `has_returned()`, which is called under the lock, and changed_ is notified. Returns false when
// NcclDevices::leave_within has passed, without the time in which NCCL has waited for other work of the devices.
// `is_slow` is called when as much time has passed altogether, repeatedly.
bool NcclCommunicator::wait_for_nccl(const std::function<bool()>& has_returned,
                                     const std::function<void()>& is_slow) noexcept {
  constexpr std::chrono::milliseconds longest_step{50};
  const auto step = std::clamp(devices_.leave_within / 4, std::chrono::milliseconds(1), longest_step);
  std::weak_ptr<void> other_work = begin_watch_of_other_work();
  const Time begin = std::chrono::steady_clock::now();
  Time last = begin;
  Time::duration counted{};
  bool is_logged = false;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, step, has_returned)) return true;
    }
    const bool waits = abandoned_wait_for_other_work().value_or(!other_work.expired());
    if (other_work.expired()) other_work = begin_watch_of_other_work();
    const Time now = std::chrono::steady_clock::now();
    // A step that took longer has been held up: by the driver, or because this thread did not run.
    const auto passed = std::min<Time::duration>(now - std::exchange(last, now), 2 * step);
    if (!waits) counted += passed;
    const auto all = now - begin;
    if (all < devices_.leave_within) continue;
    is_slow();
    if (counted >= devices_.leave_within || all - devices_.leave_within >= timeout_) return false;
    if (std::exchange(is_logged, true)) continue;
    log::write(LogSubsystem::Collectives, LogLevel::Warn, [&] {
      return fmt::format("NCCL has not ended {} for {} ms: other work on its devices is still running",
                         devices_.devices.to_string(), devices_.leave_within.count());
    });
  }
}

// The result expires when the work that the devices have been given before has completed.
std::weak_ptr<void> NcclCommunicator::begin_watch_of_other_work() const noexcept try {
  const auto token = std::make_shared<char>();
  devices_.hold_while_busy(token);
  return token;
} catch (...) {  // no memory
  return {};
}

// Whether the operations that were in flight at the abort wait for other work: each device has not come to the oldest
// of those that it has not completed. std::nullopt if all are complete.
std::optional<bool> NcclCommunicator::abandoned_wait_for_other_work() noexcept try {
  std::optional<bool> wait;
  for_each_lane([&](const Lane& lane) {
    InFlightOperations::Operations abandoned;
    {
      const std::lock_guard lock(mutex_);
      if (telling_) {  // abort() is changing them: this time counts
        wait = false;
        return;
      }
      abandoned = lane.abandoned_;
    }
    for (std::size_t rank = 0; rank < lane.ranks_.size(); ++rank) {
      const auto oldest = std::ranges::find_if(abandoned, [&](const std::shared_ptr<NcclOperation>& operation) {
        const auto& completion = operation->ranks[rank].completion;
        return completion != nullptr && !completion->reached();
      });
      if (oldest == abandoned.end()) continue;
      const auto& dependencies = (*oldest)->ranks[rank].dependencies;
      wait = wait.value_or(true) && dependencies != nullptr && !dependencies->reached();
    }
  });
  return wait;
} catch (...) {  // no memory: its time counts
  return false;
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
  const detail::BlockedSignals blocked;
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
