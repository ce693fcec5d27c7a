#pragma once

#include <coxswain/device_handle/base/device_id.hpp>

#include <string>

namespace cox {

/// Describes what the device's thread is doing and how many tasks are queued, for the error messages of threads that
/// wait for the device: "in task step (train.cpp:31), 12 queued after it". Any thread; does not block the device
/// thread.
[[nodiscard]] std::string device_activity(DeviceId device);

}  // namespace cox
