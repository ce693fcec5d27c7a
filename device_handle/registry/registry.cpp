#include <coxswain/device_handle/registry/registry.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/deadline.hpp>
#include <coxswain/device_handle/base/fork.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/statistics.hpp>
#include <coxswain/device_handle/registry/inline_device.hpp>
#include <coxswain/device_handle/registry/library_copy.hpp>
#include <coxswain/device_handle/thread/device_thread.hpp>
#include <coxswain/device_handle/thread/stall_watcher.hpp>

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace cox {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds exit_timeout{10};

constinit std::atomic<const ShutdownListener*> shutdown_listener{nullptr};

// Devices with a thread come before inline devices.
struct Key {
  bool is_inline;
  DeviceId device;
  Stage stage;

  friend auto operator<=>(const Key&, const Key&) = default;
};

struct Entry {
  std::shared_ptr<DeviceBase> device;
  bool closing = false;
};

struct Devices {
  std::mutex mutex;
  std::condition_variable changed;  // an entry was removed
  std::map<Key, Entry> open;
  std::multimap<DeviceId, std::weak_ptr<WaitNode>> joined;  // held by threads that services of the device join
  bool exiting = false;
};

Devices& devices();
void shutdown_others(std::chrono::milliseconds timeout) noexcept;

// At process exit the devices are drained while the rest of the process is still intact.
struct ExitGuard {
  ~ExitGuard() {
    {
      const std::scoped_lock lock(devices().mutex);
      devices().exiting = true;
      if (detail::is_forked()) return;
    }
    if (!HeldNode::any_held()) {
      shutdown_all(exit_timeout);
    } else {
      shutdown_others(exit_timeout);
    }
  }
};

void before_fork() { devices().mutex.lock(); }
void in_parent() { devices().mutex.unlock(); }
void in_child() {
  detail::set_forked();
  for (const auto& [key, entry] : devices().open) entry.device->mark_forked();
  HeldNode::clear();
  devices().mutex.unlock();
}

Devices& devices() {
  static auto& instance = *[] {
    pthread_atfork(before_fork, in_parent, in_child);
    return new Devices;  // never destroyed: handles and device threads may outlive static destructors
  }();
  return instance;
}

/// The devices that a shutdown has taken out of service.
struct Closing {
  std::vector<std::shared_ptr<DeviceBase>> devices;
  std::vector<std::shared_ptr<DeviceThread>> threads;  // those of `devices` that have a thread
  std::vector<std::shared_ptr<DeviceThread>> late;     // the same; see DeviceThread::join()
};

// Takes the matching devices out of service, except those that the calling thread is inside and those that another
// shutdown has taken. Nothing that follows in the shutdown needs memory: a device must not stay closing for ever.
template <class Matches>
Closing mark_closing(Devices& all, const Matches& matches) {
  Closing closing;
  closing.devices.reserve(all.open.size());
  closing.threads.reserve(all.open.size());
  closing.late.reserve(all.open.size());
  for (auto& [key, entry] : all.open) {
    if (!matches(key.device) || entry.device->on_this_thread() || std::exchange(entry.closing, true)) continue;
    closing.devices.push_back(entry.device);
    if (auto thread = std::dynamic_pointer_cast<DeviceThread>(entry.device)) {
      closing.late.push_back(thread);
      closing.threads.push_back(std::move(thread));
    }
  }
  return closing;
}

// The nodes that a shutdown of the matching devices waits for, except those that the calling thread is inside.
template <class Matches>
std::vector<std::shared_ptr<WaitNode>> targets_of(Devices& all, const Matches& matches) {
  std::vector<std::shared_ptr<WaitNode>> targets;
  for (const auto& [key, entry] : all.open) {
    if (matches(key.device) && !entry.device->on_this_thread()) targets.push_back(entry.device);
  }
  for (const auto& [device, joined] : all.joined) {
    auto node = matches(device) ? joined.lock() : nullptr;
    if (node != nullptr) targets.push_back(std::move(node));
  }
  return targets;
}

std::vector<WaitNode*> pointers_to(const std::vector<std::shared_ptr<WaitNode>>& nodes) {
  std::vector<WaitNode*> pointers;
  for (const auto& node : nodes) pointers.push_back(node.get());
  return pointers;
}

template <class Matches>
ShutdownOutcome shutdown_matching(const Matches& matches, Clock::time_point deadline) {
  Devices& all = devices();
  // Destroyed without the lock. Another shutdown may remove a target from the registry while this one waits for it, but
  // the target must outlive the edges of the wait graph.
  std::vector<std::shared_ptr<WaitNode>> targets;
  Closing closing;
  std::unique_lock lock(all.mutex);
  throw_if_forked({});
  for (const auto& [key, entry] : all.open) {
    if (matches(key.device) && entry.device->on_this_thread()) {
      throw CallError(CallError::Kind::WouldDeadlock,
                      "shutdown refused: would_deadlock: called from a task of " + key.device.to_string());
    }
  }
  if (HeldNode::any_held()) targets = targets_of(all, matches);
  const WaitScope waiting(pointers_to(targets));
  if (waiting.closes_cycle()) {
    throw CallError(CallError::Kind::WouldDeadlock,
                    "shutdown refused: would_deadlock: it waits for the calling thread");
  }
  closing = mark_closing(all, matches);
  lock.unlock();

  const auto& threads = closing.threads;
  for (const auto& device : closing.devices) device->close();
  const ShutdownListener* const listener = shutdown_listener.load(std::memory_order_acquire);
  if (listener != nullptr)
    for (const auto& thread : threads) listener->closing(thread->device());
  ShutdownOutcome worst = DeviceThread::join(std::move(closing.late), threads, deadline);
  for (const auto& device : closing.devices)
    if (auto* const inline_device = dynamic_cast<InlineDevice*>(device.get()))
      worst = std::max(worst, inline_device->join(deadline));

  if (listener != nullptr)
    for (const auto& thread : threads)
      if (thread->abandoned()) listener->abandoned(thread->device());

  lock.lock();
  std::erase_if(all.open,
                [&](const auto& entry) { return std::ranges::count(closing.devices, entry.second.device) != 0; });
  all.changed.notify_all();
  lock.unlock();
  // A stall callback may be in a shutdown of the same devices, which continues only after they are removed from the
  // registry. So the watcher, which may be joined here, is stopped after that.
  for (const auto& thread : threads) detail::stop_watching(thread);
  lock.lock();
  // Another shutdown of the same devices may be in progress.
  const auto ended = [&] {
    return std::ranges::none_of(all.open, [&](const auto& entry) {
      return matches(entry.first.device) && entry.second.closing && !entry.second.device->on_this_thread();
    });
  };
  const auto left = std::max(deadline - Clock::now(), Clock::duration::zero());
  const auto in_time = detail::deadline_after(std::chrono::duration<long double>(left) + std::chrono::seconds(1));
  if (!all.changed.wait_until(lock, in_time, ended)) worst = ShutdownOutcome::Abandoned;
  lock.unlock();
  return worst;
}

// The process exits on a thread that holds devices up. Devices that wait for that thread, or that it holds, cannot be
// joined. All others are shut down at the same time.
void shutdown_others(std::chrono::milliseconds timeout) noexcept {
  const auto deadline = detail::deadline_after(timeout);
  std::vector<DeviceId> ids;
  {
    Devices& all = devices();
    const std::scoped_lock lock(all.mutex);
    for (const auto& [key, entry] : all.open) {
      const auto same = [device = key.device](DeviceId id) { return id == device; };
      if (entry.device->on_this_thread() || WaitScope(pointers_to(targets_of(all, same))).closes_cycle()) continue;
      if (std::ranges::find(ids, key.device) == ids.end()) ids.push_back(key.device);
    }
  }
  const auto listed = [&](DeviceId id) { return std::ranges::find(ids, id) != ids.end(); };
  try {
    shutdown_matching(listed, deadline);
    return;
  } catch (const CallError&) {  // one of them has begun to wait for this thread
  }
  for (const DeviceId device : ids) {
    try {
      shutdown_matching([device](DeviceId id) { return id == device; }, deadline);
    } catch (const CallError&) {
    }
  }
}

}  // namespace

template <class Device>
std::shared_ptr<Device> Registry<Device>::find_or_start(DeviceId device, Stage stage) {
  Devices& all = devices();
  static const ExitGuard exit_guard;
  const Key key{Device::is_blocking, device, stage};
  std::unique_lock lock(all.mutex);
  for (;;) {
    throw_if_forked(device);
    const auto found = all.open.find(key);
    if (found == all.open.end()) break;
    if (!found->second.closing) return std::static_pointer_cast<Device>(found->second.device);
    if (DeviceThread::current() != nullptr || HeldNode::any_held()) {
      throw CallError(CallError::Kind::Closed,
                      "cannot open a service: closed: " + device.to_string() +
                          " is being shut down and the caller is a device thread",
                      std::source_location());
    }
    all.changed.wait(lock);
  }
  if (all.exiting) {
    throw CallError(
        CallError::Kind::Closed,
        "cannot open a service: closed: the process is exiting, " + device.to_string() + " cannot be opened again",
        std::source_location());
  }
  if (const std::string other = detail::other_copy_in_use(); !other.empty()) {
    throw CallError(
        CallError::Kind::AlreadyRegistered,
        "cannot open a service: already_registered: " + other +
            " contains its own copy of Coxswain, which has opened devices of this process; two copies would "
            "start two threads for one device. Link all modules with the shared libraries of Coxswain instead "
            "(BUILD_SHARED_LIBS)");
  }
  const auto entry = all.open.emplace(key, Entry{}).first;  // first: without memory for it no thread is started
  std::shared_ptr<Device> started;
  try {
    started = Device::start(device, stage);
  } catch (...) {
    all.open.erase(entry);
    throw;
  }
  entry->second.device = started;
  if constexpr (std::is_same_v<Device, DeviceThread>) {
    if (started->options().stall_threshold.count() > 0) detail::watch_for_stalls(started);
  }
  return started;
}

template <class Device>
std::shared_ptr<Device> Registry<Device>::find(DeviceId device, Stage stage) {
  Devices& all = devices();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.open.find({Device::is_blocking, device, stage});
  return found == all.open.end() ? nullptr : std::static_pointer_cast<Device>(found->second.device);
}

template <class Device>
std::vector<std::shared_ptr<Device>> Registry<Device>::all() {
  Devices& all = devices();
  const std::scoped_lock lock(all.mutex);
  std::vector<std::shared_ptr<Device>> found;
  for (const auto& [key, entry] : all.open) {
    if (key.is_inline == Device::is_blocking) found.push_back(std::static_pointer_cast<Device>(entry.device));
  }
  return found;
}

template struct Registry<DeviceThread>;
template struct Registry<InlineDevice>;

void shutdown_waits_for(DeviceId device, const std::shared_ptr<WaitNode>& node) {
  Devices& all = devices();
  const std::scoped_lock lock(all.mutex);
  std::erase_if(all.joined, [](const auto& entry) { return entry.second.expired(); });
  all.joined.emplace(device, node);
}

void set_shutdown_listener(const ShutdownListener& listener) noexcept {
  shutdown_listener.store(&listener, std::memory_order_release);
}

ShutdownOutcome shutdown(DeviceId device, std::chrono::milliseconds timeout) {
  return shutdown_matching([device](DeviceId id) { return id == device; }, detail::deadline_after(timeout));
}

ShutdownOutcome shutdown_all(std::chrono::milliseconds timeout) {
  return shutdown_matching([](DeviceId) { return true; }, detail::deadline_after(timeout));
}

Statistics statistics(DeviceId device, Stage stage) {
  const auto thread = Registry<DeviceThread>::find(device, stage);
  return thread != nullptr ? thread->statistics() : Statistics{};
}

}  // namespace cox
