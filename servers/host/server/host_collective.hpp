#pragma once

#include <coxswain/collectives/communicator/communicator.hpp>
#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/communication/collective_call.hpp>

#include <exception>
#include <memory>

namespace cox::detail {

class HostDevice;

/// Submits the part of the device's rank in these operations, to start after all earlier work of the caller's stream
/// and after all other pending accesses to the memory. A failure of the operations is reported to all ranks and joins
/// the errors of the stream. Device thread; does not wait. Throws CollectiveError Aborted, or std::bad_alloc, if the
/// rank could not submit (too far ahead, out of memory, closed); its communicator has then been aborted for all ranks.
void queue_collective(HostDevice& device, const std::shared_ptr<Communicator>& communicator,
                      const CollectiveCallList& calls, const Caller& caller);

/// Poisons the destinations of operations that the device's rank could not submit (L14).
void poison_destinations(HostDevice& device, const CollectiveCallList& calls, const std::exception_ptr& error,
                         const Caller& caller) noexcept;

}  // namespace cox::detail
