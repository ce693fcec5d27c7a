#include <coxswain/servers/cuda/event/cuda_poller.hpp>

#include <coxswain/device_handle/queue/spin_wait.hpp>
#include <coxswain/device_handle/thread/blocked_signals.hpp>
#include <coxswain/runtime/base/thread_name.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace cox::detail {

CudaPoller::~CudaPoller() { stop(); }

void CudaPoller::add(std::shared_ptr<Polled> event, UniqueFunction<void()> function) {
  put({std::move(event), std::move(function), false}, false);
}

void CudaPoller::add_lazily(std::shared_ptr<Polled> event, UniqueFunction<void()> function) {
  put({std::move(event), std::move(function), true}, true);
}

void CudaPoller::put(Entry entry, bool lazily) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) {
      if (!thread_.joinable()) {  // first: if this throws, nothing was added
        const BlockedSignals blocked;
        thread_ = std::thread([this] { run(); });
      }
      added_.push_back(std::move(entry));
      if (!lazily || asleep_) changed_.notify_one();
      return;
    }
  }
  entry.event->wait();
  entry.function();
}

void CudaPoller::stop() noexcept {
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
    if (thread_.joinable() && thread_.get_id() == std::this_thread::get_id()) {
      thread_.detach();
    } else {
      thread = std::move(thread_);
    }
  }
  if (thread.joinable()) thread.join();
}

void CudaPoller::run() {
  name_this_thread(thread_name_);
  RelaxedCapture::of_thread();
  constexpr std::chrono::microseconds look_for{50};
  constexpr std::chrono::microseconds rest{20};
  constexpr std::chrono::milliseconds lazy_rest{1};
  std::vector<Entry> entries;
  SpinWait spin(look_for);
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (entries.empty()) {
        asleep_ = true;
        changed_.wait(lock, [this] { return stopping_ || !added_.empty(); });
        asleep_ = false;
        if (added_.empty()) return;
        spin.restart();
      }
      take_added(entries);
    }
    const bool found = serve(entries);
    const bool urgent = std::ranges::any_of(entries, [](const Entry& entry) { return !entry.lazy; });
    if (found && urgent) {
      spin.restart();
    } else if (!urgent || !spin.spin_once()) {
      // Adding an urgent entry wakes the thread; lazy entries are found when the wait ends.
      std::unique_lock lock(mutex_);
      if (std::ranges::none_of(added_, [](const Entry& entry) { return !entry.lazy; }))
        changed_.wait_for(lock, urgent ? std::chrono::microseconds(rest) : lazy_rest);
    }
  }
}

// Caller holds mutex_. If there is no memory for all entries, they are taken after the present ones have been served.
void CudaPoller::take_added(std::vector<Entry>& entries) noexcept {
  if (entries.empty()) return entries.swap(added_);
  try {
    entries.reserve(entries.size() + added_.size());
  } catch (...) {
    return;
  }
  entries.insert(entries.end(), std::move_iterator(added_.begin()), std::move_iterator(added_.end()));
  added_.clear();
}

// Returns whether any of the events was reached. The others stay, in their order.
bool CudaPoller::serve(std::vector<Entry>& entries) noexcept {
  auto waiting = entries.begin();
  for (Entry& entry : entries) {
    if (entry.event->poll()) {
      entry.function();
      entry.function.reset();
    } else {
      if (&*waiting != &entry) *waiting = std::move(entry);
      ++waiting;
    }
  }
  const bool any = waiting != entries.end();
  entries.erase(waiting, entries.end());
  return any;
}

}  // namespace cox::detail
