#include <coxswain/device_handle/registry/registry.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
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
using Key = std::pair<DeviceId, Stage>;

constexpr std::chrono::seconds exit_timeout{10};

constinit std::atomic<const ShutdownListener*> shutdown_listener{nullptr};

template <class Device>
struct Entry {
  std::shared_ptr<Device> device;
  bool closing = false;
};

struct Devices {
  std::mutex mutex;
  std::condition_variable changed;  // an entry was removed
  std::map<Key, Entry<DeviceThread>> threads;
  std::map<Key, Entry<InlineDevice>> inlines;
  std::multimap<DeviceId, std::weak_ptr<WaitNode>> joined;  // held by threads that services of the device join
  bool exiting = false;

  template <class Device>
  auto& of() {
    if constexpr (std::is_same_v<Device, DeviceThread>) {
      return threads;
    } else {
      return inlines;
    }
  }
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
  for (auto& [key, entry] : devices().threads) entry.device->mark_forked();
  for (auto& [key, entry] : devices().inlines) entry.device->mark_forked();
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

// The devices that one shutdown has taken out of service.
struct Closing {
  std::vector<std::pair<Key, std::shared_ptr<DeviceThread>>> threads;
  std::vector<std::pair<Key, std::shared_ptr<InlineDevice>>> inlines;
};

template <class Matches>
Closing mark_closing(Devices& all, const Matches& matches) {
  Closing closing;
  for (auto& [key, entry] : all.threads) {
    if (!matches(key.first) || entry.device->on_this_thread()) continue;
    if (!std::exchange(entry.closing, true)) closing.threads.emplace_back(key, entry.device);
  }
  for (auto& [key, entry] : all.inlines) {
    if (!matches(key.first) || entry.device->on_this_thread()) continue;
    if (std::exchange(entry.closing, true)) continue;
    closing.inlines.emplace_back(key, entry.device);
    entry.device->close();
  }
  return closing;
}

// The nodes that a shutdown of the matching devices waits for, except those that the calling thread is inside.
template <class Matches>
std::vector<std::shared_ptr<WaitNode>> targets_of(Devices& all, const Matches& matches) {
  std::vector<std::shared_ptr<WaitNode>> targets;
  const auto add = [&](auto& map) {
    for (auto& [key, entry] : map) {
      if (matches(key.first) && !entry.device->on_this_thread()) targets.push_back(entry.device);
    }
  };
  add(all.threads);
  add(all.inlines);
  for (auto& [device, joined] : all.joined) {
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
  const auto own = [](const auto& entry) { return entry.second.device->on_this_thread(); };
  const auto refuse_own = [&](auto& map) {
    for (auto& entry : map) {
      if (matches(entry.first.first) && own(entry)) {
        throw CallError(CallError::Kind::WouldDeadlock,
                        "shutdown refused: would_deadlock: called from a task of " + entry.first.first.to_string());
      }
    }
  };
  refuse_own(all.threads);
  refuse_own(all.inlines);
  if (HeldNode::any_held()) targets = targets_of(all, matches);
  const WaitScope waiting(pointers_to(targets));
  if (waiting.closes_cycle()) {
    throw CallError(CallError::Kind::WouldDeadlock,
                    "shutdown refused: would_deadlock: it waits for the calling thread");
  }
  closing = mark_closing(all, matches);
  lock.unlock();

  for (const auto& item : closing.threads) item.second->close();
  const ShutdownListener* const listener = shutdown_listener.load(std::memory_order_acquire);
  if (listener != nullptr)
    for (const auto& [key, thread] : closing.threads) listener->closing(key.first);
  std::vector<std::shared_ptr<DeviceThread>> threads;
  for (const auto& item : closing.threads) threads.push_back(item.second);
  ShutdownOutcome worst = DeviceThread::join(threads, deadline);
  for (const auto& item : closing.inlines) worst = std::max(worst, item.second->join(deadline));

  if (listener != nullptr)
    for (const auto& [key, thread] : closing.threads)
      if (thread->abandoned()) listener->abandoned(key.first);

  lock.lock();
  for (const auto& item : closing.threads) all.threads.erase(item.first);
  for (const auto& item : closing.inlines) all.inlines.erase(item.first);
  all.changed.notify_all();
  lock.unlock();
  // A stall callback may be in a shutdown of the same devices, which continues only after they are removed from the
  // registry. So the watcher, which may be joined here, is stopped after that.
  for (const auto& thread : threads) detail::stop_watching(thread);
  lock.lock();
  // Another shutdown of the same devices may be in progress.
  const auto ended = [&] {
    const auto open = [&](const auto& entry) {
      return matches(entry.first.first) && entry.second.closing && !own(entry);
    };
    return std::ranges::none_of(all.threads, open) && std::ranges::none_of(all.inlines, open);
  };
  if (!all.changed.wait_until(lock, deadline + std::chrono::seconds(1), ended)) worst = ShutdownOutcome::Abandoned;
  lock.unlock();
  return worst;
}

// The process exits on a thread that holds devices up. Devices that wait for that thread, or that it holds, cannot be
// joined. All others are shut down at the same time.
void shutdown_others(std::chrono::milliseconds timeout) noexcept {
  const auto deadline = Clock::now() + timeout;
  std::vector<DeviceId> ids;
  {
    Devices& all = devices();
    const std::scoped_lock lock(all.mutex);
    const auto add = [&](auto& map) {
      for (auto& [key, entry] : map) {
        const auto same = [device = key.first](DeviceId id) { return id == device; };
        if (entry.device->on_this_thread() || WaitScope(pointers_to(targets_of(all, same))).closes_cycle()) continue;
        if (std::ranges::find(ids, key.first) == ids.end()) ids.push_back(key.first);
      }
    };
    add(all.threads);
    add(all.inlines);
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
  std::unique_lock lock(all.mutex);
  for (;;) {
    throw_if_forked(device);
    auto& map = all.template of<Device>();
    const auto found = map.find({device, stage});
    if (found == map.end()) break;
    if (!found->second.closing) return found->second.device;
    if (DeviceThread::current() != nullptr || HeldNode::any_held()) {
      throw CallError(CallError::Kind::Closed,
                      "cannot open a service: closed: " + device.to_string() +
                          " is being shut down and the caller is a device thread",
                      std::source_location());
    }
    all.changed.wait(lock);
  }
  if (all.exiting) {
    throw CallError(CallError::Kind::Closed,
                    "cannot open a service: closed: the process is exiting, " + device.to_string() + " stays shut",
                    std::source_location());
  }
  if (const std::string other = detail::other_copy_in_use(); !other.empty()) {
    throw CallError(
        CallError::Kind::AlreadyRegistered,
        "cannot open a service: already_registered: " + other +
            " has a copy of Coxswain of its own, which has opened devices of this process; two copies would "
            "start two threads for one device. Link all with the shared libraries of Coxswain instead "
            "(BUILD_SHARED_LIBS)");
  }
  std::shared_ptr<Device> started = Device::start(device, stage);
  all.template of<Device>().emplace(Key{device, stage}, Entry<Device>{started});
  if constexpr (std::is_same_v<Device, DeviceThread>) {
    if (started->options().stall_threshold.count() > 0) detail::watch_for_stalls(started);
  }
  return started;
}

template <class Device>
std::shared_ptr<Device> Registry<Device>::find(DeviceId device, Stage stage) {
  Devices& all = devices();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.template of<Device>().find({device, stage});
  return found == all.template of<Device>().end() ? nullptr : found->second.device;
}

template <class Device>
std::vector<std::shared_ptr<Device>> Registry<Device>::all() {
  Devices& open = devices();
  const std::scoped_lock lock(open.mutex);
  std::vector<std::shared_ptr<Device>> found;
  for (const auto& [key, entry] : open.template of<Device>()) found.push_back(entry.device);
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
  return shutdown_matching([device](DeviceId id) { return id == device; }, Clock::now() + timeout);
}

ShutdownOutcome shutdown_all(std::chrono::milliseconds timeout) {
  return shutdown_matching([](DeviceId) { return true; }, Clock::now() + timeout);
}

Statistics statistics(DeviceId device, Stage stage) {
  const auto thread = Registry<DeviceThread>::find(device, stage);
  return thread != nullptr ? thread->statistics() : Statistics{};
}

}  // namespace cox
