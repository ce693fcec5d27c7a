#pragma once

#include <coxswain/collectives/group/communication_group.hpp>
#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/communication/collective_call.hpp>

#include <exception>
#include <memory>

namespace cox::detail {

class HostDevice;

/// The device's rank takes part in these operations, behind all work of the caller's stream so far and all other uses
/// of the memory. What is wrong with them is told to all ranks, and ends with the stream's errors. Device thread; does
/// not wait. Throws CollectiveError Aborted, or std::bad_alloc, if the rank could not even ask (too far ahead, no
/// memory, closed): its communicator has then been given up for all ranks.
void queue_collective(HostDevice& device, const std::shared_ptr<CommunicationGroup>& group,
                      const CollectiveCallList& calls, const Caller& caller);

/// The device's rank could not even ask for these: what it would have got is poisoned (L14).
void poison_destinations(HostDevice& device, const CollectiveCallList& calls, const std::exception_ptr& error,
                         const Caller& caller) noexcept;

}  // namespace cox::detail
