#pragma once

#include <stdexcept>

namespace cox::tools {

/// Thrown when a requested device is not available on this machine or in this build. `what()` is one line.
class DeviceUnavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cox::tools
