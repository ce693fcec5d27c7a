#pragma once

#include <coxswain/device_handle/base/device_id.hpp>

#include <chrono>
#include <cstdint>

namespace cox {

/// How a shutdown ended; of several threads, the worst.
enum class ShutdownOutcome : std::uint8_t {
  Drained,    ///< Everything accepted has run. Also if there was nothing to shut down.
  Discarded,  ///< The time was up: what had not started was destroyed unrun, its waiters got CallError Closed.
  Abandoned,  ///< As Discarded, and a task that never returned keeps its thread, which is no longer ours.
};

/// Shuts a device down: both its threads, all its services, its inline services too. From the first moment every new
/// call throws CallError Closed (L4); what was accepted runs (L2); then the services are destroyed on their thread,
/// youngest first, and the threads are joined (L13). Blocks, at most about `timeout` and a second. Idempotent; an
/// unknown device is Drained. After it the device can be opened again. Not from a thread of that device, one of its
/// completion handlers or host kernels, or a task that one of those waits for: throws CallError WouldDeadlock; in a
/// forked child: CallError Forked.
ShutdownOutcome shutdown(DeviceId device, std::chrono::milliseconds timeout = std::chrono::seconds(30));

/// Shuts every device down, all at once. Blocks, at most about `timeout` and a second however many are stuck. Is called
/// at process exit.
ShutdownOutcome shutdown_all(std::chrono::milliseconds timeout = std::chrono::seconds(30));

/// Callbacks for shutdowns, on the thread that calls shutdown(), before the device can be opened again. They must
/// neither throw nor open or shut down devices.
struct ShutdownListener {
  /// The device refuses new calls; those that it has accepted may have yet to run.
  void (*closing)(DeviceId device) noexcept;
  /// Its shutdown ends as Abandoned: its services are not destroyed, so what they share with other devices, such as
  /// communicators, has to be closed here.
  void (*abandoned)(DeviceId device) noexcept;
};
/// Replaces the former one. `listener` lives for ever. Any thread.
void set_shutdown_listener(const ShutdownListener& listener) noexcept;

}  // namespace cox
