#pragma once

#include <memory>

namespace cox {
class DeviceThread;
}

namespace cox::detail {

/// Has the process's one watcher thread look at `thread` from time to time. Starts the watcher if need be.
void watch_for_stalls(const std::shared_ptr<DeviceThread>& thread);

/// Ends that. With the last device thread the watcher ends; blocks until it has, except in a stall callback and on a
/// thread that holds a device up.
void stop_watching(const std::shared_ptr<DeviceThread>& thread);

}  // namespace cox::detail
