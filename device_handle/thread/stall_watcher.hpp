#pragma once

#include <memory>

namespace cox {
class DeviceThread;
}

namespace cox::detail {

/// Adds `thread` to the threads that the process's one watcher thread checks periodically. Starts the watcher if it is
/// not running.
void watch_for_stalls(const std::shared_ptr<DeviceThread>& thread);

/// Removes `thread` from the watched threads. If it was the last one, the watcher ends, and this call blocks until it
/// has ended, except in a stall callback and on a thread that holds a device up.
void stop_watching(const std::shared_ptr<DeviceThread>& thread);

}  // namespace cox::detail
