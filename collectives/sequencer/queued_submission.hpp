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

/// What a rank submitted for an operation, and what it is granted.
struct QueuedSubmission {
  CommunicatorNumber communicator;
  std::size_t rank;
  std::string why = {};  ///< The text of what it failed for.
  CollectiveSubmission submitted = {};
  LaunchGrant grant = {};
  DeviceId device = {};
};

/// An submission is allocated once, before it is accepted. From then on it goes from list to list by splicing, which
/// cannot fail: so it cannot be lost.
using QueuedSubmissions = std::list<QueuedSubmission, RecyclingAllocator<QueuedSubmission>>;

}  // namespace cox::detail
