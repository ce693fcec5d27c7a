#pragma once

#include <coxswain/collectives/group/communication_group.hpp>
#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/communication/collective_call.hpp>
#include <coxswain/runtime/launch/submit_mode.hpp>

#include <exception>
#include <memory>

namespace cox::detail {

class CudaDevice;
class CudaStream;

/// The device's rank takes part in these operations, behind all work of the caller's stream so far and all other uses
/// of the memory. What is wrong with them is told to all ranks, and ends with the stream's errors. Device thread; does
/// not wait. Throws CollectiveError Aborted, or std::bad_alloc, if they could not even be noted (no memory, closed, too
/// many wait already): their communicator has then been given up for all ranks, and poison_destinations() must follow.
void queue_collective(CudaDevice& device, CudaStream& stream, const std::shared_ptr<CommunicationGroup>& group,
                      const CollectiveCallList& calls, const Caller& caller, SubmitMode when);

/// What these operations, which could not even be noted, should have written is poisoned (L14). Device thread.
void poison_destinations(CudaDevice& device, const CollectiveCallList& calls, const std::exception_ptr& error,
                         const Caller& caller) noexcept;

}  // namespace cox::detail
