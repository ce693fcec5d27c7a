#include <coxswain/collectives/watchdog.hpp>

#include <coxswain/runtime/detail/thread_name.hpp>

#include <algorithm>
#include <utility>

namespace cox {

Watchdog::Watchdog(Look look, std::function<Time()> now)
    : look_(std::move(look)), now_(now ? std::move(now) : [] { return std::chrono::steady_clock::now(); }) {}

Watchdog::~Watchdog() { stop(); }

void Watchdog::watch(Time deadline) {
  const std::lock_guard lock(mutex_);
  if (stopped_ || (running_ && next_ <= deadline)) return;
  if (running_) {
    next_ = deadline;
    changed_.notify_one();
    return;
  }
  if (thread_.joinable()) thread_.join();  // It has let go of the lock for the last time.
  next_ = deadline;
  thread_ = std::thread([this] { run(); });
  running_ = true;
}

void Watchdog::look_again() {
  const std::lock_guard lock(mutex_);
  if (!running_) return;
  look_again_ = true;
  changed_.notify_one();
}

void Watchdog::stop() noexcept {
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_one();
    thread.swap(thread_);
  }
  if (thread.joinable()) thread.join();
}

bool Watchdog::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

void Watchdog::run() {
  detail::name_this_thread("cox-watchdog");
  std::unique_lock lock(mutex_);
  while (next_ != Time::max() || look_again_) {
    while (waits()) changed_.wait_until(lock, Time(next_));
    if (stopped_) break;
    look_again_ = false;
    next_ = Time::max();  // A deadline that is set during the look counts for the next.
    lock.unlock();
    const std::optional<Time> next = look_(now_());
    lock.lock();
    if (next) next_ = std::min(next_, *next);
  }
  running_ = false;
}

}  // namespace cox
