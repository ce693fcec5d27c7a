#pragma once

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/statistics.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/tools/cox/stress/gate.hpp>
#include <coxswain/tools/cox/stress/order_auditor.hpp>
#include <coxswain/tools/cox/stress/truth.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace cox::stress {

/// The devices of a run as its clients use them. In some runs, devices are shut down and opened again during the run. A
/// client then holds a Use while it uses a device, and checks openings() for new handles. Any thread.
template <class Backend>
class DeviceTable {
 public:
  using Handle = typename Backend::template Handle<OrderAuditor>;
  using Compute = typename Backend::Compute;

  /// Prevents a shutdown of the device during its lifetime.
  class Use {
   public:
    explicit Use(Gate* entered) noexcept : gate_(entered) {}
    Use(Use&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Use& operator=(Use&&) = delete;
    ~Use() {
      if (gate_ != nullptr) gate_->leave();
    }

   private:
    Gate* gate_;
  };

  /// `changes`: devices may be shut down in the run.
  DeviceTable(Truth& truth, bool changes) : truth_(truth), changes_(changes) {}

  void add(Handle handle, Compute compute) { devices_.emplace_back(std::move(handle), std::move(compute)); }
  /// Called with the index of a device that was shut down, before it is opened again.
  void on_shutdown(std::function<void(std::size_t)> call) { on_shutdown_ = std::move(call); }
  void clear() { devices_.clear(); }

  [[nodiscard]] std::size_t size() const noexcept { return devices_.size(); }
  /// Blocks while the device is being shut down.
  [[nodiscard]] Use use(std::size_t device) {
    if (changes_) devices_[device].gate.enter();
    return Use(changes_ ? &devices_[device].gate : nullptr);
  }
  /// Does not wait; empty if the device is being shut down.
  [[nodiscard]] std::optional<Use> try_use(std::size_t device) {
    if (changes_ && !devices_[device].gate.try_enter()) return std::nullopt;
    return Use(changes_ ? &devices_[device].gate : nullptr);
  }
  /// How often the device was opened again. Acquire pairs with the release in reopen(): the new handles are visible.
  [[nodiscard]] std::uint64_t openings(std::size_t device) const noexcept {
    return devices_[device].openings.load(std::memory_order_acquire);
  }
  // These require a Use:
  [[nodiscard]] Handle& handle(std::size_t device) noexcept { return devices_[device].handle; }
  [[nodiscard]] Compute& compute(std::size_t device) noexcept { return devices_[device].compute; }
  /// Statistics of the device since the start, from before each reopen(), too.
  [[nodiscard]] Statistics statistics(std::size_t device) const {
    Statistics all = devices_[device].before;
    return all += devices_[device].handle.statistics();
  }

  /// Shuts the device down and opens it again; calls `closed()` in between. Blocks until no Use of it is left.
  template <class Closed>
  void reopen(std::size_t index, const Closed& closed) {
    Device& device = devices_[index];
    device.gate.close();
    const DeviceId id = truth_.device(index).id;
    const ShutdownOutcome outcome = shutdown(id);
    if (outcome != ShutdownOutcome::Drained) violated(id, "shutdown drains the device", "work was discarded");
    device.before += device.handle.statistics();
    if (on_shutdown_) on_shutdown_(index);
    closed();
    try {
      device.compute = Compute::load(id);
      device.handle = Handle::insert(id, OrderAuditor(truth_, index));
    } catch (...) {
      violated(id, "the device can be opened again after a shutdown", describe(std::current_exception()));
    }
    device.openings.fetch_add(1, std::memory_order_release);
    device.gate.open();
  }

 private:
  struct Device {
    Device(Handle opened, Compute client) : handle(std::move(opened)), compute(std::move(client)) {}

    Gate gate;
    Handle handle;
    Compute compute;
    Statistics before;  // of earlier openings
    std::atomic<std::uint64_t> openings{0};
  };

  void violated(DeviceId id, std::string expected, std::string got) {
    truth_.violations().add(
        {.law = Law::Teardown, .expected = std::move(expected), .got = std::move(got), .device = id});
  }

  Truth& truth_;
  const bool changes_;
  std::deque<Device> devices_;
  std::function<void(std::size_t)> on_shutdown_;
};

}  // namespace cox::stress
