#pragma once

#include <coxswain/collectives/sequencer/collective_launch.hpp>
#include <coxswain/collectives/watch/communicator_number.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/handle/recycled_memory.hpp>

#include <cstddef>
#include <exception>
#include <list>
#include <memory>
#include <string>

namespace cox {

/// Operations that must be released (or refused) before another one, because the rank's compute stream waits for them.
using CollectiveDependencies = SmallVector<CollectiveId, 2>;

/// One rank's submission of its next operation, from the rank's queue to its release or refusal.
struct CollectiveSubmission {
  CollectiveRequests requests;                ///< One, or those of a group: launched as one. Not empty.
  CollectiveDependencies dependencies = {};   ///< Operations that the rank's launch will wait for on its device.
  std::exception_ptr failure = nullptr;       ///< Why this rank cannot take part; refuses the operation for all ranks.
  std::shared_ptr<void> operation = nullptr;  ///< Of rank 0: the object that the launches of all ranks share.
  std::shared_ptr<CollectiveLaunch> launch = nullptr;  ///< Not null.
  bool on_launch_thread = false;  ///< Release it on the device's launch thread: see Sequencer::set_launch_thread.

  // Set by the sequencer:
  CommunicatorNumber communicator{};
  std::size_t rank = 0;
  DeviceId device{};
  std::string why = {};  ///< Text of `failure`; empty if there is none.
  LaunchGrant grant = {};
};

/// A submission is allocated once, before it is accepted. After that it is only spliced from list to list, which cannot
/// fail, so no accepted submission is lost.
using CollectiveSubmissions = std::list<CollectiveSubmission, detail::RecyclingAllocator<CollectiveSubmission>>;

}  // namespace cox
