#include <coxswain/device_handle/thread/take_over.hpp>

#include <utility>

namespace cox {
namespace {

// How long one task, or the destruction of one, may continue after the deadline before its thread is abandoned.
constexpr std::chrono::milliseconds grace{1000};

}  // namespace

// A take-over has been requested. The side that first changes the request decides.
bool TakeOver::keep() noexcept {
  Custody expected = Custody::Requested;
  custody_.compare_exchange_strong(expected, Custody::Kept, std::memory_order_acq_rel);
  return expected != Custody::Taken;
}

void TakeOver::discard_rest(const RunningTask& running) noexcept {
  discarding_.store(true, std::memory_order_relaxed);
  progress_ = running.serial();
  stuck_since_ = std::chrono::steady_clock::now();
}

bool TakeOver::take_if_stuck(const RunningTask& running) noexcept {
  const std::uint64_t serial = running.serial();
  const auto now = std::chrono::steady_clock::now();
  if (std::exchange(progress_, serial) != serial) stuck_since_ = now;
  return now - stuck_since_ >= grace && take(running);
}

bool TakeOver::take(const RunningTask& running) noexcept {
  custody_.store(Custody::Requested, std::memory_order_seq_cst);
  SystemPlatform::heavy_barrier();  // pairs with the light_barrier in leave_task()
  Custody expected = Custody::Requested;
  const Custody next = running.in_task() ? Custody::Taken : Custody::Kept;
  return custody_.compare_exchange_strong(expected, next, std::memory_order_acq_rel) && next == Custody::Taken;
}

}  // namespace cox
