#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stage.hpp>
#include <coxswain/device_handle/observe/wait_graph.hpp>

#include <memory>
#include <vector>

namespace cox {

class DeviceThread;
class InlineDevice;

/// The process's devices of one kind (DeviceThread or InlineDevice), by device and stage. No lock is held while a
/// thread starts up or a service is built: bringing up one device never waits for another.
template <class Device>
struct Registry {
  /// The device's thread of that stage, started if there is none. While the device is being shut down, waits for the
  /// end of that; on a device thread throws CallError Closed instead. Throws CallError Forked, Closed (the process is
  /// exiting), std::system_error.
  [[nodiscard]] static std::shared_ptr<Device> find_or_start(DeviceId device, Stage stage);

  /// The same, or nullptr.
  [[nodiscard]] static std::shared_ptr<Device> find(DeviceId device, Stage stage);

  /// Those that are open or being shut down, in the order of device and stage.
  [[nodiscard]] static std::vector<std::shared_ptr<Device>> all();
};

extern template struct Registry<DeviceThread>;
extern template struct Registry<InlineDevice>;

/// From now on, a shutdown of `device` waits for the threads that hold `node` (HeldNode), so that such a thread, and
/// whatever it waits for, gets CallError WouldDeadlock instead of shutting the device down (L10). For the threads of a
/// service that its destructor joins and that run user code. Ends with the last owner of `node`. Any thread; does not
/// block. Throws std::bad_alloc.
void shutdown_waits_for(DeviceId device, const std::shared_ptr<WaitNode>& node);

}  // namespace cox
