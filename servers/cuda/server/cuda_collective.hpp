#pragma once

#include <coxswain/collectives/communicator/communicator.hpp>
#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/communication/collective_call.hpp>
#include <coxswain/runtime/launch/submit_mode.hpp>

#include <exception>
#include <memory>

namespace cox::detail {

class CudaDevice;
class CudaStream;

/// Submits these operations for the device's rank. They run after all earlier work of the caller's stream and after all
/// earlier uses of their memory. If an operation is invalid, all ranks are notified, and the failure is added to the
/// stream's errors. Device thread; does not block. Throws CollectiveError Aborted, or std::bad_alloc, if the operations
/// could not even be recorded (no memory, communicator closed, too many waiting already). Their communicator has then
/// been aborted for all ranks, and poison_destinations() must follow.
void queue_collective(CudaDevice& device, CudaStream& stream, const std::shared_ptr<Communicator>& communicator,
                      const CollectiveCallList& calls, const Caller& caller, SubmitMode when);

/// Poisons what the operations should have written, after queue_collective() has thrown (L14). Device thread.
void poison_destinations(CudaDevice& device, const CollectiveCallList& calls, const std::exception_ptr& error,
                         const Caller& caller) noexcept;

}  // namespace cox::detail
