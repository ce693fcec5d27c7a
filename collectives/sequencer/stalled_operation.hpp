#pragma once

#include <coxswain/collectives/sequencer/open_communicators.hpp>
#include <coxswain/device_handle/base/device_id.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace cox::detail {

/// Why the oldest unresolved operation of a communicator is not resolved.
struct StalledOperation {
  struct Missing {
    DeviceId device;
    std::string last;  ///< Its last submission on the communicator that waits for it, as text.
  };
  std::string text;              ///< The operation, and the chain of operations that it waits for.
  std::vector<Missing> missing;  ///< The ranks that have not submitted the last operation of this chain.
};

/// The ranks of this process that have not submitted the operation.
[[nodiscard]] std::vector<StalledOperation::Missing> missing_ranks(const CommunicatorSequence& communicator,
                                                                   std::uint64_t sequence);
/// Precondition: the communicator has an unresolved operation. `waited` is how long it has waited, for the text.
[[nodiscard]] StalledOperation find_stalled_operation(const OpenCommunicators& communicators,
                                                      const CommunicatorSequence& communicator,
                                                      std::chrono::milliseconds waited);

}  // namespace cox::detail
