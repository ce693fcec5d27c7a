#include <coxswain/runtime/async/blocked_wait.hpp>

#include <algorithm>
#include <mutex>
#include <vector>

namespace cox::detail {

/// A wait that observe() has found, and when it first found it.
struct BlockedWait::Seen {
  std::shared_ptr<Slot> slot;
  std::uint64_t serial = 0;
  std::uint32_t device = 0;
  std::chrono::steady_clock::time_point first{};
};

/// The slots of the threads of the process. The slot of a thread that has ended stays until the next observe().
struct BlockedWait::Registration {
  std::mutex mutex;
  std::vector<std::shared_ptr<Slot>> slots;  // guarded by mutex, like `seen`
  std::vector<Seen> seen;

  static Registration& of_process() {
    static auto& made = *new Registration;
    return made;
  }
};

// If memory is exhausted, the thread shares a slot with other threads, and its waits are not observed.
BlockedWait::Slot& BlockedWait::enroll() noexcept {
  static Slot shared;
  try {
    thread_local std::shared_ptr<Slot> own;
    own = std::make_shared<Slot>();
    Registration& all = Registration::of_process();
    const std::lock_guard lock(all.mutex);
    all.slots.push_back(own);
    return *own;
  } catch (...) {
    return shared;
  }
}

std::vector<DeviceId> BlockedWait::observe(std::chrono::steady_clock::time_point now,
                                           std::chrono::nanoseconds at_least) {
  Registration& all = Registration::of_process();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.slots, [](const auto& slot) { return slot.use_count() == 1; });
  std::erase_if(all.seen, [](const Seen& seen) {
    return seen.slot->serial.load(std::memory_order_relaxed) != seen.serial ||
           seen.slot->device.load(std::memory_order_acquire) != seen.device;
  });
  for (const auto& slot : all.slots) {
    const std::uint32_t device = slot->device.load(std::memory_order_acquire);
    const std::uint64_t serial = slot->serial.load(std::memory_order_relaxed);
    if (device == 0 || std::ranges::any_of(all.seen, [&](const Seen& seen) { return seen.slot == slot; })) continue;
    all.seen.push_back({slot, serial, device, now});
  }
  std::vector<DeviceId> awaited;
  for (const Seen& seen : all.seen)
    if (now - seen.first >= at_least) awaited.push_back(device_of(seen.device));
  return awaited;
}

}  // namespace cox::detail
