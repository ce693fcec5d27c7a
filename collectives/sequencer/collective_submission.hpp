#pragma once

#include <coxswain/collectives/sequencer/collective_launch.hpp>
#include <coxswain/collectives/watch/communicator_number.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>

#include <cstdint>
#include <exception>
#include <memory>

namespace cox {

/// Operations that must be released (or refused) before another one, because the rank's compute stream waits for them.
using CollectiveDependencies = SmallVector<CollectiveId, 2>;

/// One rank's submission of its next operation.
struct CollectiveSubmission {
  CollectiveRequests requests;               ///< One, or those of a group: launched as one. Not empty.
  CollectiveDependencies dependencies = {};  ///< Operations that the rank's launch will wait for on its device.
  std::exception_ptr failure = nullptr;      ///< Why this rank cannot take part; refuses the operation for all ranks.
  std::shared_ptr<void> shared = nullptr;    ///< Of rank 0: passed to the launches of all ranks.
  CollectiveLaunch launch = {};              ///< Not empty.
  bool on_launch_thread = false;  ///< Call `launch` on the device's launch thread: see Sequencer::set_launch_thread.
};

}  // namespace cox
