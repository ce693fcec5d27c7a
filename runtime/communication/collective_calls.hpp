#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/exceed_capacity.hpp>
#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/collective_group.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/launch/submit_mode.hpp>
#include <coxswain/runtime/tensor/copy_plan.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>
#include <coxswain/runtime/tensor/memory_layout.hpp>

#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

namespace cox {

/// The collective operations and transfers of a ComputeClient: calls in which the clients of several devices take part.
///
/// A collective operation needs one call for each device of its communicator, from any threads and in any order. A call
/// submits one closure to the device thread and returns; no thread blocks for the other devices. The operation begins
/// on a device when all earlier work of the calling stream is complete and all ranks have submitted the operation. Its
/// memory is kept until it has completed, however early the handles are dropped (L11). The n-th operation of one device
/// on a communicator matches the n-th operation of every other device. Operations of different communicators may be
/// submitted in any order, also on overlapping sets of devices: all devices run them in one order, so that they cannot
/// deadlock.
///
/// Work that uses the memory later, on any stream, waits for the collective automatically; after sync_collective() all
/// later work of the stream does. A failure joins the errors of the calling stream, as a CollectiveError in a
/// ServerError Unhealthy (L12). Its kind is Mismatch (the ranks submitted different operations), RankFailed (a rank
/// could not take part) or WouldDeadlock (operations wait for each other in a cycle). Timeout (ranks did not arrive)
/// and Aborted apply to the whole communicator from then on, until ensure_init_collective.
///
/// All functions throw CollectiveError. Validation: as CollectiveGroup does, and if the set of devices is empty, names
/// a device twice, has devices of several types or devices that do not exist, or does not include this one.
/// Unsupported: the server cannot communicate, or its handle is an InlineDeviceHandle.
template <class Server, class Client>
class CollectiveCalls {
 public:
  using Site = std::source_location;

  /// Opens the communicator of these devices, or finds the open one. A communicator that is no longer usable is
  /// replaced; call this to continue after a timeout or an abort. One call by the client of any of the devices is
  /// enough. The operations below open their communicator if it is not open. Does not wait for other devices.
  void ensure_init_collective(const CommunicationId& devices, Site site = Site::current()) const {
    require_communication(devices, site);
    if constexpr (communicates)
      static_cast<void>(find_communicator([&] { return Server::renew_communicator(devices); }, site));
  }

  /// Aborts the communicator: all operations that wait for its ranks, and all that are submitted later, on every
  /// device, fail with CollectiveError Aborted with `cause` as its cause, until ensure_init_collective. Operations that
  /// all ranks have already submitted are carried out. Does nothing if the communicator has been aborted before. Any
  /// thread; does not block.
  void abort_collective(const CommunicationId& devices, const std::exception_ptr& cause,
                        Site site = Site::current()) const {
    require_communication(devices, site);
    if constexpr (communicates) communicator_of(devices, site)->abort(cause);
  }

  /// Refers to the communicator of these devices, which is opened if it is not open, without keeping it. After
  /// ensure_init_collective() has opened it again, refers to another object. Throws what the operations below throw.
  [[nodiscard]] std::weak_ptr<const void> communicator(const CommunicationId& devices,
                                                       Site site = Site::current()) const {
    require_communication(devices, site);
    if constexpr (communicates) return communicator_of(devices, site);
    return {};
  }

  /// See CollectiveGroup for the meaning of each operation, and for when it may be in place.
  void all_reduce(const Handle& source, const Handle& destination, ElementType type, const CommunicationId& devices,
                  ReduceOperation operation = ReduceOperation::Sum, Site site = Site::current()) const {
    collective_group(
        devices, [&](CollectiveGroup& group) { group.all_reduce(source, destination, type, operation); }, site);
  }
  void reduce(const Handle& source, const Handle& destination, ElementType type, const CommunicationId& devices,
              ReduceOperation operation, DeviceId root, Site site = Site::current()) const {
    collective_group(
        devices, [&](CollectiveGroup& group) { group.reduce(source, destination, type, operation, root); }, site);
  }
  void broadcast(const Handle& source, const Handle& destination, ElementType type, const CommunicationId& devices,
                 DeviceId root, Site site = Site::current()) const {
    collective_group(devices, [&](CollectiveGroup& group) { group.broadcast(source, destination, type, root); }, site);
  }
  void all_gather(const Handle& source, const Handle& destination, ElementType type, const CommunicationId& devices,
                  Site site = Site::current()) const {
    collective_group(devices, [&](CollectiveGroup& group) { group.all_gather(source, destination, type); }, site);
  }
  void reduce_scatter(const Handle& source, const Handle& destination, ElementType type, const CommunicationId& devices,
                      ReduceOperation operation = ReduceOperation::Sum, Site site = Site::current()) const {
    collective_group(
        devices, [&](CollectiveGroup& group) { group.reduce_scatter(source, destination, type, operation); }, site);
  }
  void all_to_all(const Handle& source, const Handle& destination, ElementType type, const CommunicationId& devices,
                  Site site = Site::current()) const {
    collective_group(devices, [&](CollectiveGroup& group) { group.all_to_all(source, destination, type); }, site);
  }
  void barrier(const CommunicationId& devices, Site site = Site::current()) const {
    collective_group(devices, [](CollectiveGroup& group) { group.barrier(); }, site);
  }
  /// Submits several operations as one. `f(CollectiveGroup&)` is called on this thread and adds the operations. All
  /// ranks must add the same ones. If `f` throws, the exception is rethrown and nothing is submitted.
  template <std::invocable<CollectiveGroup&> F>
  void collective_group(const CommunicationId& devices, F&& f, Site site = Site::current()) const {
    require_communication(devices, site);
    if constexpr (communicates) {
      CollectiveGroup group(devices, client().device_id(), Caller{client().stream_id(), site});
      std::forward<F>(f)(group);
      if (!group.empty()) communicate(communicator_of(devices, site), std::move(group), site);
    }
  }

  /// Sends to another device, which must call receive(): the n-th send from one device to another matches the n-th
  /// receive there. Independent of the collectives of the two devices.
  void send(const Handle& source, ElementType type, DeviceId to, Site site = Site::current()) const {
    transfer(to, [&](CollectiveGroup& group) { group.send(source, type, to); }, site);
  }
  void receive(const Handle& destination, ElementType type, DeviceId from, Site site = Site::current()) const {
    transfer(from, [&](CollectiveGroup& group) { group.receive(destination, type, from); }, site);
  }

  /// Later work of the stream waits until all collectives and transfers that were submitted to this device before, on
  /// any stream, have completed. No thread waits.
  void sync_collective(Site site = Site::current()) const {
    require_supported(site);
    if constexpr (communicates)
      client().submit(site, "sync_collective",
                      [](Server& server, const Caller& caller) { server.sync_collective(caller); });
  }

  /// Returns new memory on the other client's device that receives a copy of this memory, taken in stream order; the
  /// new memory belongs to the other client's stream. Does not block if both servers are of one kind that communicates.
  /// Otherwise, and if both clients are of the same device, the bytes go through the host, and this blocks until they
  /// have been read. Throws CollectiveError Validation if the size is not a whole number of elements.
  template <class Other>
  [[nodiscard]] Handle to_client(const Handle& source, const Other& destination, ElementType type,
                                 Site site = Site::current()) const {
    require_elements(source.size_in_used(), type, site);
    if constexpr (communicates_with<Other>) {
      if (client().device_id() != destination.device_id()) {
        Handle received = destination.empty(source.size_in_used(), site);
        exchange(
            destination, [&](CollectiveGroup& group) { group.send(source, type, destination.device_id()); },
            [&](CollectiveGroup& group) { group.receive(received, type, client().device_id()); }, site);
        return received;
      }
    }
    return destination.create(client().read_one(source, site), site);
  }
  /// As to_client, for a tensor, which gets the layout that the other device prefers. Also throws the IoError that a
  /// read of the tensor would throw, and CollectiveError Validation if its elements do not have the size of `type`.
  template <class Other>
  [[nodiscard]] MemoryLayout to_client_tensor(CopyDescriptor source, const Other& destination, ElementType type,
                                              Site site = Site::current()) const {
    static_cast<void>(plan_copy(source, site));
    if (source.elem_size != element_size(type)) require_elements(source.elem_size, type, site, true);
    const Shape shape = source.shape;
    if constexpr (communicates_with<Other>) {
      if (const DeviceId from = client().device_id(); from != destination.device_id()) {
        MemoryLayout received = destination.empty_tensor(shape, source.elem_size, site);
        exchange(
            destination, [&](CollectiveGroup& group) { group.send(std::move(source), type, destination.device_id()); },
            [&](CollectiveGroup& group) {
              group.receive(received.copy_descriptor(shape, element_size(type)), type, from);
            },
            site);
        return received;
      }
    }
    const std::size_t elem_size = source.elem_size;
    return destination.create_tensor(client().read_one_tensor(std::move(source), site), shape, elem_size, site);
  }

 private:
  template <class, class>
  friend class CollectiveCalls;

  static constexpr bool communicates = Server::communication_enabled;
  template <class Other>
  static constexpr bool communicates_with = communicates && std::is_same_v<Client, Other> && !Client::is_blocking();

  [[nodiscard]] const Client& client() const noexcept { return static_cast<const Client&>(*this); }

  [[nodiscard]] auto communicator_of(const CommunicationId& devices, const Site& site) const {
    return find_communicator([&] { return Server::communicator(devices); }, site);
  }
  // Returns find(). If several devices were shut down, the client's own takes precedence: CallError Closed. An error
  // that `find` throws without a line, since it does not know the caller, is rethrown with `site`.
  template <class Find>
  [[nodiscard]] auto find_communicator(const Find& find, const Site& site) const {
    try {
      return find();
    } catch (const CollectiveError& error) {
      if (error.kind() == CollectiveError::Kind::Aborted)
        client().submit(site, "collective", [](Server&, const Caller&) {});
      if (error.site().line() != 0) throw;
      throw CollectiveError(error.kind(), error.what(), site, error.cause());
    }
  }

  template <class F>
  void transfer(DeviceId other, F&& f, const Site& site) const {
    collective_group(CommunicationId({client().device_id(), other}, site), std::forward<F>(f), site);
  }

  // Submits both halves of a transfer. A half without its counterpart would match a half of the next transfer. So
  // either both are submitted, or the communicator of the two devices is aborted. Halves of other threads cannot come
  // in between.
  template <class Send, class Receive>
  void exchange(const Client& destination, Send&& send, Receive&& receive, const Site& site) const {
    require_supported(site);
    const CommunicationId devices({client().device_id(), destination.device_id()}, site);
    CollectiveGroup sends(devices, client().device_id(), Caller{client().stream_id(), site});
    CollectiveGroup receives(devices, destination.device_id(), Caller{destination.stream_id(), site});
    std::forward<Send>(send)(sends);
    std::forward<Receive>(receive)(receives);
    const auto communicator = communicator_of(devices, site);
    client().submit(site, "to_client", [](Server&, const Caller&) {});  // blocks for room here, not under the lock
    const std::lock_guard together(communicator->pairing());
    const detail::ExceedCapacity exceed;
    communicate(communicator, std::move(sends), site);
    try {
      destination.communicate(communicator, std::move(receives), site);
    } catch (...) {
      communicator->abort(std::current_exception());
      throw;
    }
  }

  template <class Communicator>
  void communicate(std::shared_ptr<Communicator> communicator, CollectiveGroup calls, const Site& site) const {
    client().submit(site, "collective",
                    [communicator = std::move(communicator), calls = std::move(calls).take_calls(),
                     pending = client().pending_collective()](Server& server, const Caller& caller) mutable {
                      server.communicate(std::move(communicator), std::move(calls), caller, SubmitMode::Batched);
                    });
  }

  static void require_elements(std::size_t bytes, ElementType type, const Site& site, bool exactly = false) {
    const std::size_t size = element_size(type);
    if (exactly ? bytes == size : bytes % size == 0) return;
    throw CollectiveError(CollectiveError::Kind::Validation,
                          "transfer refused: " + std::to_string(bytes) +
                              (exactly ? " bytes are not one " : " bytes are not a whole number of ") +
                              std::string(to_string(type)),
                          site);
  }
  void require_supported(const Site& site) const {
    if constexpr (!communicates)
      throw CollectiveError(CollectiveError::Kind::Unsupported,
                            client().device_id().to_string() + " cannot communicate: its server does not support it",
                            site);
    if constexpr (Client::is_blocking())
      throw CollectiveError(CollectiveError::Kind::Unsupported,
                            client().device_id().to_string() +
                                " cannot communicate: its client runs its calls on the caller's thread, and a "
                                "collective needs all devices at once",
                            site);
  }
  void require_communication(const CommunicationId& devices, const Site& site) const {
    require_supported(site);
    static_cast<void>(devices.rank_of(client().device_id(), site));
  }
};

}  // namespace cox
