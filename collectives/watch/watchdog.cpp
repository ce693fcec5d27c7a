#include <coxswain/collectives/watch/watchdog.hpp>

#include <coxswain/device_handle/thread/blocked_signals.hpp>
#include <coxswain/runtime/base/thread_name.hpp>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace cox {

struct Watchdog::State {
  State(Check check_function, std::function<Time()> clock) : check(std::move(check_function)), now(std::move(clock)) {}

  const Check check;
  const std::function<Time()> now;
  std::mutex mutex;
  std::condition_variable changed;
  Time next = Time::max();  // guarded by mutex, as all below
  bool running = false;
  bool recheck = false;
  bool stopped = false;

  [[nodiscard]] bool waits() const { return !stopped && !recheck && now() < next; }

  void run() {
    std::unique_lock lock(mutex);
    while (!stopped && (next != Time::max() || recheck)) {
      while (waits()) changed.wait_until(lock, Time(next));
      if (stopped) break;
      recheck = false;
      next = Time::max();  // a deadline that is set during the check is for the next one
      lock.unlock();
      const std::optional<Time> later = check(now());
      lock.lock();
      if (later) next = std::min(next, *later);
    }
    running = false;
    changed.notify_all();
  }
};

Watchdog::Watchdog(Check check, std::function<Time()> now)
    : state_(std::make_shared<State>(
          std::move(check), now ? std::move(now) : [] { return std::chrono::steady_clock::now(); })) {}

Watchdog::~Watchdog() { stop(); }

void Watchdog::watch(Time deadline) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.stopped || (state.running && state.next <= deadline)) return;
  if (!state.running) {
    const detail::BlockedSignals blocked;
    std::thread([held = state_] {
      detail::name_this_thread("cox-watchdog");
      held->run();
    }).detach();
    state.running = true;
    state.next = Time::max();
  }
  state.next = std::min(state.next, deadline);
  state.changed.notify_all();
}

void Watchdog::recheck() {
  const std::lock_guard lock(state_->mutex);
  if (!state_->running) return;
  state_->recheck = true;
  state_->changed.notify_all();
}

void Watchdog::stop() noexcept {
  std::unique_lock lock(state_->mutex);
  state_->stopped = true;
  state_->changed.notify_all();
  state_->changed.wait(lock, [this] { return !state_->running; });
}

bool Watchdog::running() const {
  const std::lock_guard lock(state_->mutex);
  return state_->running;
}

}  // namespace cox
