#pragma once

#include <coxswain/device_handle/base/device_id.hpp>

#include <string>

namespace cox {

/// What the device's thread is doing and how much waits behind it, in words, for whoever waits for the device: "in
/// task step (train.cpp:31), 12 tasks queued". Any thread; does not block the device thread.
[[nodiscard]] std::string device_activity(DeviceId device);

}  // namespace cox
