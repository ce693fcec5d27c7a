#pragma once

#include <coxswain/device_handle/device_id.hpp>

#include <string>

namespace cox {

/// "host:0", "cuda:1", "type7:0": what traces and metrics call a device.
[[nodiscard]] inline std::string device_label(DeviceId device) {
  const std::string kind = device.type == 0 ? "host" : device.type == 1 ? "cuda" : "type" + std::to_string(device.type);
  return kind + ":" + std::to_string(device.index);
}

}  // namespace cox
