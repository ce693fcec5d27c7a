#include <coxswain/servers/cuda/detail/launch_gate.hpp>

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
  const std::lock_guard lock(mutex_);
  if (closed_ != 0) {
    waiting_.push_back(std::move(then));
    return false;
  }
  ++inside_;
  return true;
}

void LaunchGate::leave() noexcept {
  const std::lock_guard lock(mutex_);
  if (--inside_ == 0 && closed_ != 0) changed_.notify_all();
}

void LaunchGate::add_part() noexcept {
  const std::lock_guard lock(mutex_);
  ++parts_;
}

void LaunchGate::remove_part() noexcept {
  const std::lock_guard lock(mutex_);
  if (--parts_ == 0 && closed_ != 0) changed_.notify_all();
}

std::shared_ptr<void> LaunchGate::quiet() {
  std::unique_lock lock(mutex_);
  ++closed_;
  const bool is_quiet = changed_.wait_for(lock, patience, [this] { return inside_ == 0 && parts_ == 0; });
  lock.unlock();
  std::shared_ptr<void> held(this, [](LaunchGate* gate) { gate->open(); });  // on failure it is opened, too
  if (is_quiet) return held;
  throw CollectiveError(CollectiveError::Kind::Timeout,
                        "a communicator could not be made: collectives that were under way have not been launched on "
                        "all their devices for a minute");
}

void LaunchGate::open() noexcept {
  std::vector<UniqueFunction<void()>> may_enter;
  {
    const std::lock_guard lock(mutex_);
    if (--closed_ == 0) may_enter.swap(waiting_);
  }
  for (auto& then : may_enter) then();
}

}  // namespace cox::detail
