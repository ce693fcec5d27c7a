#include <coxswain/device_handle/inline_device.hpp>

#include <coxswain/device_handle/registry.hpp>

#include <thread>

namespace cox {
namespace {

constexpr std::chrono::milliseconds try_again{1};

}  // namespace

std::shared_ptr<InlineDevice> InlineDevice::start(DeviceId device, Stage stage) {
  return std::shared_ptr<InlineDevice>(new InlineDevice(device, stage));
}

InlineDevice::InlineDevice(DeviceId device, Stage stage)
    : device_(device), stage_(stage), options_(device_thread_options(device)) {}

std::unique_lock<std::mutex> InlineDevice::enter() {
  throw_if_forked(device_);  // another thread may have held the lock when the process forked
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    const WaitScope waiting(*this);
    if (waiting.ring()) {
      throw CallError(CallError::Kind::WouldDeadlock,
                      "call refused: would_deadlock: the thread in " + device_.to_string() + " waits for this one",
                      std::source_location());
    }
    lock.lock();
  }
  return lock;
}

InlineDevice::Entry::Entry(InlineDevice& device, std::unique_lock<std::mutex> lock)
    : device_(device), lock_(std::move(lock)), current_(device), held_(device) {
  device_.owner_.store(this_thread(), std::memory_order_relaxed);
}

InlineDevice::Entry::~Entry() { device_.owner_.store(nullptr, std::memory_order_relaxed); }

void InlineDevice::run_pending() {
  while (!pending_.empty()) {
    Pending next = std::move(pending_.front());
    pending_.pop_front();
    const StreamScope scope(next.stream);
    ledger_.ended(next.task());
  }
}

ShutdownOutcome InlineDevice::join(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  while (!lock.owns_lock()) {
    if (std::chrono::steady_clock::now() >= deadline) return ShutdownOutcome::Abandoned;
    std::this_thread::sleep_for(try_again);
    [[maybe_unused]] const bool now_ours = lock.try_lock();
  }
  const Entry entry(*this, std::move(lock));  // destructors may call
  closed_ = true;
  services_.close();
  return ShutdownOutcome::Drained;
}

void InlineDevice::throw_closed() const {
  throw CallError(CallError::Kind::Closed, "call refused: closed: " + device_.to_string() + " is shut down",
                  std::source_location());
}

}  // namespace cox
