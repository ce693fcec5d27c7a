#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/runtime/async/promise.hpp>
#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/handle/binding.hpp>
#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/runtime/memory/borrowed_memory.hpp>

#include <concepts>
#include <cstddef>
#include <memory>
#include <source_location>
#include <utility>

namespace cox {

/// A server that takes memory and functions of code outside the library: ComputeClient::borrow, call, issued, quiet.
///
/// - Ready: what the owner says about when the memory may be accessed. Fence: the same as the server keeps it.
/// - require_foreign(device, pointer, bytes, site): throws IoError unless the device can access the memory. Any thread.
/// - fence(device, ready, site): may queue something on a stream of `ready`. Throws ServerError. Any thread.
/// - quiesce(): until the result is destroyed no collective begins; blocks until none is half started. Not on a device
///   thread.
/// - borrow(memory, pointer, fence, owner, caller): the pointer becomes the storage of the memory. Failures as
///   initialize_memory.
/// - wait_for(memory, fence, caller): later work on the memory runs after the fence.
/// - issued(caller, promise): completes the promise when all earlier work of the stream has been given to the device.
/// - call(arguments, function, caller): queues a call of `function` as one operation on the buffers. Failures as
///   launch.
/// - try_call(arguments, function, caller): as call, if nothing that is not issued yet must be issued before; else
///   returns false, and when_callable(arguments, caller, promise) completes the promise when that may have changed.
template <class S>
concept ForeignServer =
    requires(S& server, ManagedMemory memory, void* pointer, std::size_t bytes, DeviceId device,
             const typename S::Ready& ready, const typename S::Fence& fence, std::shared_ptr<BorrowedMemory> owner,
             const Caller& caller, const Binding& binding, Promise<void> promise, const LaunchArguments& arguments,
             typename S::NativeCall function, std::source_location site) {
      S::require_foreign(device, pointer, bytes, site);
      { S::fence(device, ready, site) } -> std::same_as<typename S::Fence>;
      { S::quiesce() } -> std::same_as<std::shared_ptr<void>>;
      { server.borrow(memory, pointer, fence, owner, caller) } -> std::same_as<void>;
      { server.wait_for(binding, fence, caller) } -> std::same_as<void>;
      { server.issued(caller, std::move(promise)) } -> std::same_as<void>;
      { server.call(arguments, std::move(function), caller) } -> std::same_as<void>;
      { server.try_call(arguments, function, caller) } -> std::same_as<bool>;
      { server.when_callable(arguments, caller, std::move(promise)) } -> std::same_as<void>;
    };

/// A server of devices with native streams: ComputeClient::use_stream, end_use, ready_on.
///
/// - use_stream(stream, caller): the StreamId of the work that is issued on that stream. Throws ServerError.
/// - end_use(id, caller): nothing is issued on that stream any more. Throws ServerError Validation if work is left.
/// - ready_on(memory, access, stream, caller, promise): makes the stream wait for what an access to the memory must
///   wait for. Completes the promise when the wait has been given to the device.
template <class S>
concept ForeignStreamServer =
    ForeignServer<S> && requires(S& server, typename S::NativeStream stream, StreamId id, const Binding& binding,
                                 Access access, const Caller& caller, Promise<void> promise) {
      { server.use_stream(stream, caller) } -> std::same_as<StreamId>;
      { server.end_use(id, caller) } -> std::same_as<void>;
      { server.ready_on(binding, access, stream, caller, std::move(promise)) } -> std::same_as<void>;
    };

}  // namespace cox
