#include <coxswain/runtime/communication/pending_collectives.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>

#include <map>
#include <mutex>

namespace cox {
namespace {

constinit std::atomic<const PendingCollectives::Listener*> told{nullptr};

struct Devices {
  std::mutex mutex;
  std::map<DeviceId, PendingCollectives> by_id;  // guarded by mutex; the addresses of entries are stable
};

void note_closing(DeviceId device) noexcept;
void note_abandoned(DeviceId device) noexcept;

// Never destroyed: devices that are shut down at process exit still use it.
Devices& all() {
  static Devices& made = []() -> Devices& {
    auto* const devices = new Devices;
    static constexpr ShutdownListener listener{.closing = note_closing, .abandoned = note_abandoned};
    set_shutdown_listener(listener);
    return *devices;
  }();
  return made;
}

template <class F>
void each(const F& f) {
  Devices& devices = all();
  const std::lock_guard lock(devices.mutex);
  for (auto& [id, pending] : devices.by_id) f(id, pending);
}

void note_closing(DeviceId device) noexcept {
  PendingCollectives* found = nullptr;
  each([&](DeviceId id, PendingCollectives& pending) {
    if (id == device) found = &pending;
  });
  if (found != nullptr) found->close();
}

void note_abandoned(DeviceId device) noexcept {
  if (const auto* const listener = told.load(std::memory_order_seq_cst)) listener->abandoned(device);
}

}  // namespace

PendingCollectives& PendingCollectives::for_device(DeviceId device) {
  Devices& devices = all();
  const std::lock_guard lock(devices.mutex);
  return devices.by_id.try_emplace(device, device).first->second;
}

void PendingCollectives::set_listener(const Listener& listener) noexcept {
  told.store(&listener, std::memory_order_seq_cst);
  each([](DeviceId, PendingCollectives& pending) { pending.check_drained(); });
}

void PendingCollectives::open(std::uint64_t generation) noexcept {
  if (generation_.exchange(generation, std::memory_order_seq_cst) == generation) return;
  closing_.store(0, std::memory_order_seq_cst);
}

void PendingCollectives::close() noexcept {
  closing_.store(generation_.load(std::memory_order_seq_cst), std::memory_order_seq_cst);
  check_drained();
}

// `ended_` is loaded before `submitted_`: if the two are equal, neither count changed in between.
void PendingCollectives::check_drained() const noexcept {
  const std::uint64_t generation = closing_.load(std::memory_order_seq_cst);
  const auto* const listener = told.load(std::memory_order_seq_cst);
  if (generation == 0 || listener == nullptr) return;
  const std::uint64_t ended = ended_.load(std::memory_order_seq_cst);
  if (ended == submitted_.load(std::memory_order_seq_cst)) listener->drained(device_, generation);
}

}  // namespace cox
