#include <coxswain/servers/cuda/detail/launch_gate.hpp>

#include <coxswain/collectives/communication_groups.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <chrono>
#include <utility>

namespace cox::detail {
namespace {

constexpr std::chrono::minutes patience{1};

}  // namespace

LaunchGate& LaunchGate::of_process() {
  static auto& gate = *new LaunchGate;
  return gate;
}

bool LaunchGate::try_enter(UniqueFunction<void()> then) {
  busy_.fetch_add(1, std::memory_order_seq_cst);
  if (closed_.load(std::memory_order_seq_cst) == 0) [[likely]]
    return true;
  count_down();
  const std::lock_guard lock(mutex_);
  if (closed_.load(std::memory_order_seq_cst) != 0) {
    waiting_.push_back(std::move(then));
    return false;
  }
  busy_.fetch_add(1, std::memory_order_seq_cst);  // under the lock nobody closes it
  return true;
}

void LaunchGate::count_down() noexcept {
  if (busy_.fetch_sub(1, std::memory_order_seq_cst) != 1 || closed_.load(std::memory_order_seq_cst) == 0) return;
  const std::lock_guard lock(mutex_);  // who waits has looked before, or waits already
  changed_.notify_all();
}

std::shared_ptr<void> LaunchGate::quiet() {
  std::unique_lock lock(mutex_);
  closed_.fetch_add(1, std::memory_order_seq_cst);
  CommunicationGroups::of_process().sequencer().freeze();
  const bool quiet = changed_.wait_for(lock, patience, [this] { return is_quiet(); });
  lock.unlock();
  std::shared_ptr<void> held(this, [](LaunchGate* gate) { gate->open(); });  // on failure it is opened, too
  if (quiet) return held;
  throw CollectiveError(CollectiveError::Kind::Timeout,
                        "a communicator could not be made: collectives that were under way have not been launched on "
                        "all their devices for a minute");
}

void LaunchGate::open() noexcept {
  CommunicationGroups::of_process().sequencer().thaw();
  std::vector<UniqueFunction<void()>> may_enter;
  {
    const std::lock_guard lock(mutex_);
    if (closed_.fetch_sub(1, std::memory_order_seq_cst) == 1) may_enter.swap(waiting_);
  }
  for (auto& then : may_enter) then();
}

}  // namespace cox::detail
