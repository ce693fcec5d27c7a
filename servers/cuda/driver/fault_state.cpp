#include <coxswain/servers/cuda/driver/fault_state.hpp>

#include <chrono>
#include <utility>

namespace cox::detail {

FaultState& FaultState::instance() {
  static FaultState& state = *new FaultState;
  return state;
}

bool FaultState::claim(std::shared_ptr<const GpuFault> found) noexcept {
  constexpr std::chrono::milliseconds longest{20};
  std::unique_lock lock(mutex_);
  if (claimed_) {
    published_.wait_for(lock, longest, [&] { return known(); });
    return false;
  }
  claimed_ = true;
  fault_ = std::move(found);
  return true;
}

void FaultState::publish(std::shared_ptr<const GpuFault> fault) noexcept {
  {
    const std::scoped_lock lock(mutex_);
    fault_ = std::move(fault);
    known_.store(true, std::memory_order_release);  // pairs with the acquire in known()
  }
  published_.notify_all();
}

void FaultState::forget() noexcept {
  const std::scoped_lock lock(mutex_);
  claimed_ = false;
  fault_.reset();
  known_.store(false, std::memory_order_release);  // pairs with the acquire in known()
}

std::shared_ptr<const GpuFault> FaultState::fault() const noexcept {
  const std::scoped_lock lock(mutex_);
  return fault_;
}

}  // namespace cox::detail

namespace cox {

std::shared_ptr<const GpuFault> gpu_fault() noexcept {
  const detail::FaultState& state = detail::FaultState::instance();
  return state.known() ? state.fault() : nullptr;
}

int exit_code(int code) noexcept { return detail::FaultState::instance().known() ? gpu_fault_exit_code : code; }

}  // namespace cox
