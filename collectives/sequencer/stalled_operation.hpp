#pragma once

#include <coxswain/collectives/sequencer/open_communicators.hpp>
#include <coxswain/device_handle/base/device_id.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace cox::detail {

/// Why the oldest operation of a communicator is not resolved.
struct StalledOperation {
  struct Missing {
    DeviceId device;
    std::string last;  ///< What it submitted last on the communicator that waits for it.
  };
  std::string text;              ///< What waits, for what, and that for what.
  std::vector<Missing> missing;  ///< What it is in the end: ranks that have not submitted it.
};

/// The communicator has such an operation, which has waited for so long.
[[nodiscard]] StalledOperation find_stalled_operation(const OpenCommunicators& communicators,
                                                      const CommunicatorSequence& communicator,
                                                      std::chrono::milliseconds waited);

}  // namespace cox::detail
