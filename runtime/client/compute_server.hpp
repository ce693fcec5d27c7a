#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/service/service_cell.hpp>
#include <coxswain/runtime/async/promise.hpp>
#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/base/execution_mode.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/bytes/upload.hpp>
#include <coxswain/runtime/client/graph_id.hpp>
#include <coxswain/runtime/client/server_utilities.hpp>
#include <coxswain/runtime/communication/membership_epoch.hpp>
#include <coxswain/runtime/communication/server_communication.hpp>
#include <coxswain/runtime/handle/managed_memory.hpp>
#include <coxswain/runtime/handle/memory_usage.hpp>
#include <coxswain/runtime/launch/cube_count.hpp>
#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/runtime/launch/submit_mode.hpp>
#include <coxswain/runtime/memory/memory_pool_layout.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>
#include <coxswain/runtime/profile/profile_duration.hpp>
#include <coxswain/runtime/tensor/memory_layout_policy.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

namespace cox {

/// The operations that a server must provide to drive a device. A server lives on its device's thread: it is built
/// there from the ThreadContext of that thread or from a DeviceId, and called only there. None of its operations waits
/// for the device. Operations of one stream take effect in the order of the calls. A static_assert after the class of
/// each server checks the concept.
///
/// - initialize_memory(memory, size, caller) -> bool: allocates `size` bytes of storage for the memory. On failure,
///   stores the cause in the memory's state and among the stream's errors, and returns false.
/// - write(uploads, caller): copies host bytes into device memory, in order; stops at the first upload that fails,
///   whose error joins the stream's errors.
/// - read(downloads, caller, promise): completes the promise in stream order, with one Bytes for each download. If work
///   queued before on the stream failed, completes it with ServerError Unhealthy instead and clears those errors; an
///   invalid request completes it with IoError.
/// - launch(kernel, count, arguments, mode, caller, when): queues the kernel. `arguments` are valid during the call.
/// Any
///   failure joins the stream's errors.
/// - sync(caller, promise): summarises the profiler and then completes the promise when all work of the stream so far
///   is complete; errors as in read.
/// - flush(caller): throws the stream's errors so far as ServerError Unhealthy, and clears them.
/// - memory_usage(caller): of the whole device. Throws ServerError Unhealthy while the stream has errors; keeps them.
/// - memory_report(caller): how the memory of the whole device is used; errors as memory_usage.
/// - staging(sizes, caller): host buffers that the device can copy from and to directly. Throws IoError.
/// - get_resource(binding, caller): the storage itself. Throws IoError.
/// - accept(binding, caller): declares the allocation valid from here on in stream order, even if operations on it have
///   failed (L14). Throws IoError, ServerError Graph.
/// - allocation_mode(mode, caller): selects the pool for later allocations of the stream. Windows nest: Persistent
///   opens one, Auto closes the last one.
/// - install_memory_pools(layout, caller): rebuilds the pools. Throws ServerError Validation.
/// - memory_cleanup(caller): returns unused memory to the system, as far as that does not wait for the device.
/// - start_profile(caller), end_profile(token, failures, caller): measure the duration of the stream's work in between;
///   `failures` says where its failures are reported. Throw ProfileError, ServerError Graph.
/// - graph_prepare, begin_capture, end_capture(caller): see ComputeClient. Throw ServerError: Graph if the call is out
///   of order or the capture failed, Unhealthy for earlier failures of the stream.
/// - capturing(caller): whether the stream's work is recorded instead of run.
/// - replay(graph, called, caller): queues the graph's work on its stream, for a call that was made in epoch `called`.
///   Failures join the stream's errors.
/// - graph_destroy(graph, caller): releases the graph; does not wait for its replays.
/// - on_task_error(error, stream): adds an exception that a queued closure threw to the errors of `stream`.
/// - report_failures_to(stream, caller): from now on, failures of collectives that are queued on the caller's stream,
///   and of operations that cannot be queued on it, also join the errors of `stream`; nothing: of no other stream. If
///   `stream` is capturing, its capture fails with ServerError Graph.
/// - enumerate_devices(type), enumerate_all_devices(): the devices that this kind of server can open. Any thread.
/// - Kernel: has name() and cube_dim(). If it also has prepare(DeviceId), which must not throw, every launch calls that
///   first, on the client thread: expensive work, such as compiling, is done there instead of on the device thread.
template <class S>
concept ComputeServer =
    OpenableService<S> && std::movable<S> && ServerCommunication<S> && MemoryLayoutPolicy<typename S::LayoutPolicy> &&
    std::movable<typename S::Kernel> &&
    requires(S& server, const S& constant, ManagedMemory memory, std::size_t size, const Caller& caller,
             Uploads uploads, Downloads downloads, Promise<std::vector<Bytes>> contents, Promise<void> done,
             typename S::Kernel kernel, const CubeCount& count, const LaunchArguments& arguments, ExecutionMode mode,
             SubmitMode when, std::exception_ptr error, StreamId stream, std::uint16_t type,
             std::span<const std::size_t> sizes, const Binding& binding, AllocationMode allocation_mode,
             const MemoryPoolLayout& layout, ProfilingToken token, ProfileFailures failures, GraphId graph,
             MembershipEpoch called) {
      typename S::Info;
      typename S::Resource;
      { server.initialize_memory(memory, size, caller) } -> std::same_as<bool>;
      { server.write(std::move(uploads), caller) } -> std::same_as<void>;
      { server.read(std::move(downloads), caller, std::move(contents)) } -> std::same_as<void>;
      { server.launch(std::move(kernel), count, arguments, mode, caller, when) } -> std::same_as<void>;
      { server.sync(caller, std::move(done)) } -> std::same_as<void>;
      { server.flush(caller) } -> std::same_as<void>;
      { server.memory_usage(caller) } -> std::same_as<MemoryUsage>;
      { server.memory_report(caller) } -> std::same_as<MemoryReport>;
      { server.memory_cleanup(caller) } -> std::same_as<void>;
      { server.staging(sizes, caller) } -> std::same_as<std::vector<Bytes>>;
      { server.get_resource(binding, caller) } -> std::same_as<typename S::Resource>;
      { server.accept(binding, caller) } -> std::same_as<void>;
      { server.allocation_mode(allocation_mode, caller) } -> std::same_as<void>;
      { server.install_memory_pools(layout, caller) } -> std::same_as<void>;
      { server.start_profile(caller) } -> std::same_as<ProfilingToken>;
      { server.end_profile(token, failures, caller) } -> std::same_as<ProfileDuration>;
      { server.graph_prepare(caller) } -> std::same_as<void>;
      { server.begin_capture(caller) } -> std::same_as<void>;
      { server.end_capture(caller) } -> std::same_as<GraphId>;
      { server.capturing(caller) } -> std::same_as<bool>;
      { server.replay(graph, called, caller) } -> std::same_as<void>;
      { server.graph_destroy(graph, caller) } -> std::same_as<void>;
      { server.on_task_error(error, stream) } -> std::same_as<void>;
      { server.report_failures_to(stream, caller) } -> std::same_as<void>;
      { constant.utilities() } -> std::same_as<std::shared_ptr<const ServerUtilities<S>>>;
      { S::enumerate_devices(type) } -> std::same_as<std::vector<DeviceId>>;
      { S::enumerate_all_devices() } -> std::same_as<std::vector<DeviceId>>;
    };

}  // namespace cox
