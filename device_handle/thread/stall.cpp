#include <coxswain/device_handle/thread/stall.hpp>

#include <coxswain/device_handle/observe/wait_graph.hpp>
#include <coxswain/device_handle/thread/blocked_signals.hpp>
#include <coxswain/device_handle/thread/device_thread.hpp>
#include <coxswain/device_handle/thread/stall_watcher.hpp>

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace cox {
namespace {

using Clock = std::chrono::steady_clock;

struct Watched {
  std::weak_ptr<DeviceThread> thread;
  std::chrono::milliseconds threshold;
  std::uint64_t serial = 0;   // of the task seen last
  Clock::time_point since{};  // time when it was first seen
  bool reported = false;
};

struct Watcher {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::vector<Watched> watched;
  std::function<void(const StallReport&)> callback;
  std::uint64_t additions = 0;
  std::jthread thread;
};

Watcher& watcher() {
  static auto& instance = *new Watcher;  // never destroyed: the thread may outlive static destructors
  return instance;
}

// Returns the stall to report, or null.
std::unique_ptr<StallReport> look_at(Watched& watched, const std::shared_ptr<DeviceThread>& thread,
                                     Clock::time_point now) {
  const std::uint64_t serial = thread->running().serial();
  if (serial % 2 == 0 || serial != watched.serial) {
    watched.serial = serial;
    watched.since = now;
    watched.reported = false;
    return nullptr;
  }
  const auto held = std::chrono::duration_cast<std::chrono::milliseconds>(now - watched.since);
  if (watched.reported || held < watched.threshold) return nullptr;
  watched.reported = true;
  thread->count_stall();
  const std::size_t depth = thread->statistics().depth;
  return std::make_unique<StallReport>(
      StallReport{thread->device(), thread->stage(), thread->running().to_string(), held, depth > 0 ? depth - 1 : 0});
}

void report(const StallReport& stall, const std::function<void(const StallReport&)>& callback) {
  if (callback) {
    callback(stall);
  } else {
    std::fputs(("coxswain: " + stall.to_string() + "\n").c_str(), stderr);
  }
}

void watch(const std::stop_token& stop, Watcher& w) {
  pthread_setname_np(pthread_self(), "cox-stall");
  std::unique_lock lock(w.mutex);
  while (!stop.stop_requested()) {
    auto period = std::chrono::milliseconds::max();
    std::vector<StallReport> found;
    for (Watched& watched : w.watched) {
      period = std::min(period, watched.threshold);
      if (const auto thread = watched.thread.lock()) {
        if (const auto stall = look_at(watched, thread, Clock::now())) found.push_back(*stall);
      }
    }
    const auto callback = w.callback;
    const std::uint64_t seen = w.additions;
    lock.unlock();
    for (const StallReport& stall : found) report(stall, callback);
    lock.lock();
    const auto pause = std::clamp(period / 4, std::chrono::milliseconds(1), std::chrono::milliseconds(10'000));
    w.changed.wait_for(lock, stop, pause, [&w, seen] { return w.additions != seen; });
  }
}

}  // namespace

std::string StallReport::to_string() const {
  return "a task has held the device thread of " + device.to_string() + " (" + cox::to_string(stage) + ") for " +
         std::to_string(held.count()) + " ms: " + task + "; " + std::to_string(waiting) + " queued after it";
}

void set_stall_callback(std::function<void(const StallReport&)> callback) {
  const std::scoped_lock lock(watcher().mutex);
  watcher().callback = std::move(callback);
}

bool offer_stall_callback(std::function<void(const StallReport&)> callback) {
  const std::scoped_lock lock(watcher().mutex);
  if (watcher().callback) return false;
  watcher().callback = std::move(callback);
  return true;
}

void detail::watch_for_stalls(const std::shared_ptr<DeviceThread>& thread) {
  Watcher& w = watcher();
  const std::scoped_lock lock(w.mutex);
  w.watched.push_back({thread, thread->options().stall_threshold});
  ++w.additions;
  w.changed.notify_all();
  if (!w.thread.joinable()) {
    const detail::BlockedSignals blocked;
    w.thread = std::jthread([&w](const std::stop_token& stop) { watch(stop, w); });
  }
}

void detail::stop_watching(const std::shared_ptr<DeviceThread>& thread) {
  Watcher& w = watcher();
  std::jthread unneeded;  // joined last, without the lock
  const std::scoped_lock lock(w.mutex);
  std::erase_if(w.watched, [&](const Watched& watched) { return watched.thread.lock() == thread; });
  if (!w.watched.empty() || !w.thread.joinable()) return;
  unneeded = std::move(w.thread);
  // A callback on the watcher may be shutting the device down or waiting for the calling thread. Joining would then be
  // a deadlock, so the watcher is detached.
  if (unneeded.get_id() == std::this_thread::get_id() || HeldNode::any_held()) {
    unneeded.request_stop();
    unneeded.detach();
  }
}

}  // namespace cox
