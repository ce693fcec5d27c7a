#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>

#include <string>

namespace cox {

/// Where an operation ran or should have run. Every error of the runtime names it.
struct Location {
  DeviceId device;
  StreamId stream;

  /// "host:1, stream 7".
  [[nodiscard]] std::string to_string() const {
    return device.to_string() + ", stream " + std::to_string(stream.number());
  }
};

}  // namespace cox
