#pragma once

#include <coxswain/collectives/sequencer/collective_launch.hpp>
#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/collectives/watch/communicator_number.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/handle/recycled_memory.hpp>

#include <cstddef>
#include <list>
#include <string>

namespace cox::detail {

/// A rank's submission for an operation, and its grant.
struct QueuedSubmission {
  CommunicatorNumber communicator;
  std::size_t rank;
  std::string why = {};  ///< Text of the submission's failure; empty if it has none.
  CollectiveSubmission submitted = {};
  LaunchGrant grant = {};
  DeviceId device = {};
};

/// A submission is allocated once, before it is accepted. After that it is only spliced from list to list, which cannot
/// fail, so no accepted submission is lost.
using QueuedSubmissions = std::list<QueuedSubmission, RecyclingAllocator<QueuedSubmission>>;

}  // namespace cox::detail
