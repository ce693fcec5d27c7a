#pragma once

#include <coxswain/device_handle/base/device_id.hpp>

#include <chrono>
#include <cstdint>

namespace cox {

/// The result of a shutdown; of several threads, the worst result.
enum class ShutdownOutcome : std::uint8_t {
  Drained,    ///< All accepted tasks have run. Also returned if there was nothing to shut down.
  Discarded,  ///< The timeout expired: tasks that had not started were destroyed unrun; callers got CallError Closed.
  Abandoned,  ///< Like Discarded, and a task that never returned still holds its thread, which is not joined.
};

/// Shuts a device down: both its threads, all its services, and its inline services. From the start of the shutdown
/// every new call throws CallError Closed (L4). Accepted tasks run (L2); then the services are destroyed on their
/// thread, youngest first, and the threads are joined (L13). Blocks for at most about `timeout` plus one second.
/// Idempotent; an unknown device is Drained. Afterwards the device can be opened again. Throws CallError WouldDeadlock
/// on a thread of that device, in one of its completion handlers or host kernels, and in a task that one of those waits
/// for. Throws CallError Forked in a forked child.
ShutdownOutcome shutdown(DeviceId device, std::chrono::milliseconds timeout = std::chrono::seconds(30));

/// Shuts all devices down at the same time. Blocks for at most about `timeout` plus one second, however many threads
/// are stuck. Called at process exit.
ShutdownOutcome shutdown_all(std::chrono::milliseconds timeout = std::chrono::seconds(30));

/// Callbacks for shutdowns. Called on the thread that calls shutdown(), before the device can be opened again. They
/// must not throw, and must not open or shut down devices.
struct ShutdownListener {
  /// The device refuses new calls; accepted calls may still have to run.
  void (*closing)(DeviceId device) noexcept;
  /// The shutdown of the device ends as Abandoned. Its services are not destroyed, so this callback must close what
  /// they share with other devices, such as communicators.
  void (*abandoned)(DeviceId device) noexcept;
};
/// Replaces the previous listener. `listener` must never be destroyed. Any thread.
void set_shutdown_listener(const ShutdownListener& listener) noexcept;

}  // namespace cox
