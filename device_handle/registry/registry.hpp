#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stage.hpp>
#include <coxswain/device_handle/observe/wait_graph.hpp>

#include <memory>
#include <vector>

namespace cox {

class DeviceThread;
class InlineDevice;

/// The process's devices of one kind (DeviceThread or InlineDevice), by device and stage. No lock is held while a new
/// thread sets itself up or a service is built, so opening a service on one device never waits for another device.
template <class Device>
struct Registry {
  /// Returns the device's thread of that stage, and starts it if there is none. If the device is being shut down, waits
  /// until that has ended; on a device thread throws CallError Closed instead. Throws CallError Forked, Closed (the
  /// process is exiting), AlreadyRegistered (another copy of the library has opened devices), std::system_error.
  [[nodiscard]] static std::shared_ptr<Device> find_or_start(DeviceId device, Stage stage);

  /// Returns the device's thread of that stage, or nullptr. Does not start it.
  [[nodiscard]] static std::shared_ptr<Device> find(DeviceId device, Stage stage);

  /// All devices that are open or being shut down, ordered by device and stage.
  [[nodiscard]] static std::vector<std::shared_ptr<Device>> all();
};

extern template struct Registry<DeviceThread>;
extern template struct Registry<InlineDevice>;

/// From now on, a shutdown of `device` waits for the threads that hold `node` (HeldNode). So such a thread, and a
/// thread that it waits for, gets CallError WouldDeadlock instead of shutting the device down (L10). For threads that
/// run user code and that the destructor of a service joins. Ends when the last owner releases `node`. Any thread; does
/// not block. Throws std::bad_alloc.
void shutdown_waits_for(DeviceId device, const std::shared_ptr<WaitNode>& node);

}  // namespace cox
