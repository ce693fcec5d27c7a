#include <coxswain/device_handle/registry/inline_device.hpp>

#include <coxswain/device_handle/base/fork.hpp>

#include <thread>

namespace cox {
namespace {

constexpr std::chrono::milliseconds try_again{1};

}  // namespace

std::shared_ptr<InlineDevice> InlineDevice::start(DeviceId device, Stage stage) {
  return std::shared_ptr<InlineDevice>(new InlineDevice(device, stage));
}

InlineDevice::InlineDevice(DeviceId device, Stage stage)
    : DeviceBase(device, stage, false, device_thread_options(device)) {}

std::unique_lock<std::mutex> InlineDevice::enter() {
  throw_if_forked(device_);  // another thread may have held the lock when the process forked
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    const WaitScope waiting(*this);
    if (waiting.closes_cycle()) {
      throw CallError(CallError::Kind::WouldDeadlock,
                      "call refused: would_deadlock: the thread that runs a task of " + device_.to_string() +
                          " waits for the calling thread",
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

InlineDevice::Entry::~Entry() {
  device_.owner_.store(nullptr, std::memory_order_relaxed);
  lock_.unlock();
  device_.destroy_if_abandoned();
}

void InlineDevice::queue_dispatch(const std::shared_ptr<PostQueue>& posts) {
  if (!dispatch_inline(posts)) post([&] { return PostQueue::DispatchPosts{posts}; });
}

void InlineDevice::run_pending() {
  while (!pending_.empty()) {
    Pending next = std::move(pending_.front());
    pending_.pop_front();
    const StreamScope scope(next.stream);
    if (abandoned_.load(std::memory_order_relaxed)) {
      next.task.discard(CallError::Kind::Closed);
      counters_.count_outcome(Outcome::Cancelled);
    } else {
      counters_.count_outcome(next.task());
    }
  }
}

ShutdownOutcome InlineDevice::join(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  while (!lock.owns_lock()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      // seq_cst, like the load in destroy_if_abandoned(): a thread that this try_lock() still finds inside the device
      // reads the flag after it has unlocked, and destroys the services.
      abandoned_.store(true, std::memory_order_seq_cst);
      if (!lock.try_lock()) return ShutdownOutcome::Abandoned;
      break;
    }
    std::this_thread::sleep_for(try_again);
    [[maybe_unused]] const bool now_ours = lock.try_lock();
  }
  destroy_services(std::move(lock));
  return ShutdownOutcome::Drained;
}

void InlineDevice::destroy_services(std::unique_lock<std::mutex> lock) {
  if (std::exchange(closed_, true)) return;
  abandoned_.store(false, std::memory_order_relaxed);
  const Entry entry(*this, std::move(lock));  // destructors may make calls
  services_.close();
}

// Called by a thread that has left the device. If another thread is inside, that thread calls this function, too.
void InlineDevice::destroy_if_abandoned() {
  if (!abandoned_.load(std::memory_order_seq_cst)) [[likely]]
    return;
  if (std::unique_lock lock(mutex_, std::try_to_lock); lock.owns_lock()) destroy_services(std::move(lock));
}

void InlineDevice::throw_closed() const {
  throw CallError(CallError::Kind::Closed, "call refused: closed: " + device_.to_string() + " is shut down",
                  std::source_location());
}

}  // namespace cox
