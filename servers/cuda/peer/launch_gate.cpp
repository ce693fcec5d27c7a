#include <coxswain/servers/cuda/peer/launch_gate.hpp>

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <algorithm>
#include <chrono>
#include <source_location>
#include <utility>

namespace cox::detail {
namespace {

constexpr std::chrono::minutes patience{1};

}  // namespace

LaunchGate& LaunchGate::of_process() {
  static auto& gate = *new LaunchGate;
  return gate;
}

LaunchGate::Count& LaunchGate::count_of_this_thread() noexcept {
  static std::atomic<std::size_t> threads{0};
  thread_local const std::size_t place = threads.fetch_add(1, std::memory_order_relaxed);
  return counts_[place % counts_.size()];
}

// The `left` counts are read before the `entered` counts, and both only grow. If the sums are equal, no rank or part
// was inside the gate between the two reads.
bool LaunchGate::is_quiescent() const noexcept {
  std::uint64_t left = 0;
  for (const Count& count : counts_) left += count.left.load(std::memory_order_seq_cst);
  std::uint64_t entered = 0;
  for (const Count& count : counts_) entered += count.entered.load(std::memory_order_seq_cst);
  return entered == left;
}

bool LaunchGate::try_enter() noexcept {
  count_up();
  if (closed_.load(std::memory_order_seq_cst) == 0) [[likely]]
    return true;
  count_down();
  return false;
}

bool LaunchGate::try_enter(UniqueFunction<void()> then) {
  if (try_enter()) return true;
  const std::lock_guard lock(mutex_);
  if (closed_.load(std::memory_order_seq_cst) != 0) {
    waiting_.push_back(std::move(then));
    return false;
  }
  count_up();  // the gate cannot be closed while mutex_ is held
  return true;
}

void LaunchGate::count_down() noexcept {
  count_of_this_thread().left.fetch_add(1, std::memory_order_seq_cst);
  if (closed_.load(std::memory_order_seq_cst) == 0) [[likely]]
    return;
  const std::lock_guard lock(mutex_);  // the waiter either sees this count or is waiting already
  changed_.notify_all();
}

std::shared_ptr<void> LaunchGate::quiesce(Purpose purpose) {
  std::unique_lock lock(mutex_);
  if (holds_for_foreign(std::this_thread::get_id())) purpose = Purpose::Foreign;
  changed_.wait(lock, [&] { return can_close(purpose); });
  std::shared_ptr<void> held = close(purpose, lock);
  const bool quiescent = wait_until_quiescent(lock, std::chrono::steady_clock::now() + patience);
  lock.unlock();
  if (quiescent) return held;
  throw CollectiveError(
      CollectiveError::Kind::Timeout,
      "no moment was found at which a communicator can be created or code be loaded: in-flight collectives were not "
      "launched on all their devices within a minute",
      std::source_location());
}

std::shared_ptr<void> LaunchGate::try_quiesce(std::chrono::milliseconds within, Purpose purpose) {
  const auto deadline = std::chrono::steady_clock::now() + within;
  std::unique_lock lock(mutex_);
  if (holds_for_foreign(std::this_thread::get_id())) purpose = Purpose::Foreign;
  if (!changed_.wait_until(lock, deadline, [&] { return can_close(purpose); })) return nullptr;
  std::shared_ptr<void> held = close(purpose, lock);
  const bool quiescent = wait_until_quiescent(lock, deadline);
  lock.unlock();
  return quiescent ? held : nullptr;
}

// A rank that had entered before may have left while another thread still has to notify a device of what that rank's
// submission released: the device is counted from its notification on.
bool LaunchGate::wait_until_quiescent(std::unique_lock<std::mutex>& lock,
                                      std::chrono::steady_clock::time_point deadline) {
  do {
    if (!changed_.wait_until(lock, deadline, [this] { return is_quiescent(); })) return false;
    lock.unlock();
    Communicators::of_process().sequencer().wait_for_notifications();
    lock.lock();
  } while (!is_quiescent());
  return true;
}

bool LaunchGate::holds_for_foreign(std::thread::id thread) const noexcept {
  return std::ranges::find(foreign_, thread) != foreign_.end();
}

// The returned object opens the gate.
std::shared_ptr<void> LaunchGate::close(Purpose purpose, std::unique_lock<std::mutex>& lock) {
  const std::thread::id foreign = purpose == Purpose::Foreign ? std::this_thread::get_id() : std::thread::id();
  if (purpose == Purpose::Foreign) foreign_.push_back(foreign);
  closed_.fetch_add(1, std::memory_order_seq_cst);
  purpose_ = purpose;
  lock.unlock();
  // Without the lock: it waits for threads that pass on what was released, which may leave here.
  Communicators::of_process().sequencer().freeze();
  std::shared_ptr<void> held(this, [foreign](LaunchGate* gate) { gate->open(foreign); });
  lock.lock();
  return held;
}

// `foreign`: the thread that held it for foreign code.
void LaunchGate::open(std::thread::id foreign) noexcept {
  Communicators::of_process().sequencer().thaw();
  std::vector<UniqueFunction<void()>> may_enter;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = std::ranges::find(foreign_, foreign); at != foreign_.end()) foreign_.erase(at);
    if (closed_.fetch_sub(1, std::memory_order_seq_cst) == 1) may_enter.swap(waiting_);
    changed_.notify_all();
  }
  for (auto& then : may_enter) then();
}

}  // namespace cox::detail
