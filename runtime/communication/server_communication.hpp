#pragma once

#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/communication/collective_call.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/launch/submit_mode.hpp>

#include <concepts>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

namespace cox {

/// How a server communicates with the servers of other devices. If `communication_enabled` is false, transfers between
/// its devices go through the host, and collectives throw CollectiveError Unsupported. Otherwise it has:
///
/// - Communicator: a set of devices that communicate, shared by their ranks. abort(cause): operations that wait for
///   ranks, and operations submitted later, are refused until the communicator is renewed. pairing(): a lock for
///   submitting both halves of a transfer as one.
/// - communicator(devices): finds the communicator or opens it. renew_communicator(devices): does the same, but
/// replaces
///   one that is no longer usable because ranks were missing or it was aborted. Both may be called on any thread, do
///   not wait for other ranks and throw CollectiveError.
/// - communicate(communicator, calls, caller, when): the device's rank takes part in these operations, which begin when
/// all
///   earlier work of the stream is complete. Any failure is reported to all ranks and joins the stream's errors.
/// - sync_collective(caller): later work of the stream runs after all operations that the device has been given so far,
///   on any stream.
template <class S>
concept ServerCommunication =
    std::same_as<decltype(S::communication_enabled), const bool> &&
    (!S::communication_enabled ||
     requires(S& server, const CommunicationId& devices, std::shared_ptr<typename S::Communicator> communicator,
              CollectiveCallList calls, const Caller& caller, SubmitMode when, const std::exception_ptr& cause) {
       { S::communicator(devices) } -> std::same_as<std::shared_ptr<typename S::Communicator>>;
       { S::renew_communicator(devices) } -> std::same_as<std::shared_ptr<typename S::Communicator>>;
       { server.communicate(communicator, std::move(calls), caller, when) } -> std::same_as<void>;
       { server.sync_collective(caller) } -> std::same_as<void>;
       { communicator->abort(cause) } -> std::same_as<void>;
       { communicator->pairing() } -> std::same_as<std::mutex&>;
     });

}  // namespace cox
