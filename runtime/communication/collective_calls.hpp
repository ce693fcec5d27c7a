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

/// What a ComputeClient does together with the clients of other devices.
///
/// A collective needs one call for each device of its communicator, from whichever threads and in whatever order. It
/// hands the device thread one closure and returns; nobody's thread waits for the other devices. It begins on each
/// device when the work of the calling stream so far is done, and when all have asked for it; its memory is kept until
/// it has ended, however early the handles are dropped (L11). The operations of one device on one communicator belong,
/// in order, to those of each other device; operations of different communicators may be asked for in any order, also
/// on overlapping sets of devices: all devices get them in one order, so that they cannot deadlock.
///
/// Work that uses the memory later, on any stream, waits for the collective by itself; after sync_collective() all work
/// of the stream does. What fails joins the errors of the calling stream, as CollectiveError in a ServerError
/// Unhealthy (L12): Mismatch (the ranks do not ask for the same), RankFailed (one could not take part), WouldDeadlock
/// (operations wait for each other in a ring), and, from then on for the whole communicator until
/// ensure_init_collective, Timeout (ranks did not come) and Aborted.
///
/// All throw CollectiveError: Validation as CollectiveGroup does, and for an empty set of devices, with a
/// device twice, of several types, that do not exist, or without this one; Unsupported where the server cannot
/// communicate, or its handle is an InlineDeviceHandle.
template <class Server, class Client>
class CollectiveCalls {
 public:
  using Site = std::source_location;

  /// Opens the communicator of these devices, or finds it; one that is of no use any more is replaced, which is how to
  /// go on after a timeout or an abort. Any device's client may do so, once for all; the operations below open what is
  /// not open. Does not wait for other devices.
  void ensure_init_collective(const CommunicationId& devices, Site site = Site::current()) const {
    require_communication(devices, site);
    if constexpr (communicates)
      static_cast<void>(find_group([&] { return Server::renew_communication_group(devices); }, site));
  }

  /// This rank gives up: all that waits for ranks of this communicator and all that comes, on every device, fails with
  /// CollectiveError Aborted, with `cause` as its cause, until ensure_init_collective. Operations that all ranks have
  /// submitted already are done. Does nothing where the communicator was aborted before. Any thread; does not block.
  void abort_collective(const CommunicationId& devices, const std::exception_ptr& cause,
                        Site site = Site::current()) const {
    require_communication(devices, site);
    if constexpr (communicates) group_of(devices, site)->abort(cause);
  }

  /// See CollectiveGroup for the meaning of each. In place where that says so.
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
  /// Several operations as one: `f(CollectiveGroup&)` is called on this thread and puts them in. All ranks must put the
  /// same in. What `f` throws is rethrown, and nothing is asked for.
  template <std::invocable<CollectiveGroup&> F>
  void collective_group(const CommunicationId& devices, F&& f, Site site = Site::current()) const {
    require_communication(devices, site);
    if constexpr (communicates) {
      CollectiveGroup group(devices, client().device_id(), Caller{client().stream_id(), site});
      std::forward<F>(f)(group);
      if (!group.empty()) communicate(group_of(devices, site), std::move(group), site);
    }
  }

  /// To another device, which must ask for it with receive(): the n-th send from one device to another belongs to the
  /// n-th receive there. Independent of the collectives of the two.
  void send(const Handle& source, ElementType type, DeviceId to, Site site = Site::current()) const {
    transfer(to, [&](CollectiveGroup& group) { group.send(source, type, to); }, site);
  }
  void receive(const Handle& destination, ElementType type, DeviceId from, Site site = Site::current()) const {
    transfer(from, [&](CollectiveGroup& group) { group.receive(destination, type, from); }, site);
  }

  /// The stream goes on when all collectives and transfers that this device has been asked for before, on any stream,
  /// have ended. No thread waits.
  void sync_collective(Site site = Site::current()) const {
    require_supported(site);
    if constexpr (communicates)
      client().submit(site, "sync_collective",
                      [](Server& server, const Caller& caller) { server.sync_collective(caller); });
  }

  /// New memory of another client's device with a copy of this memory, when the stream comes to it; belongs to the
  /// other client's stream. Does not block where both are servers of one kind that communicate. Else, and on one and
  /// the same device, the bytes go through the host, and this blocks until they are there. Throws CollectiveError
  /// Validation if the memory holds no whole number of elements.
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
  /// As to_client, of a tensor, which is laid out anew as the other device likes it. Throws also IoError as a read of
  /// the tensor would, and CollectiveError Validation if its elements are not of that type's size.
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

  [[nodiscard]] auto group_of(const CommunicationId& devices, const Site& site) const {
    return find_group([&] { return Server::communication_group(devices); }, site);
  }
  // What `find()` returns. Of several devices that were shut down the client's own comes first: CallError Closed. What
  // it throws without a line, since it has none of the caller's, leaves with `site`.
  template <class Find>
  [[nodiscard]] auto find_group(const Find& find, const Site& site) const {
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

  // Both halves of a transfer. A half without the other would meet one of the next transfer, so there is both or the
  // communicator of the two is given up; and no other thread's halves come between them.
  template <class Send, class Receive>
  void exchange(const Client& destination, Send&& send, Receive&& receive, const Site& site) const {
    require_supported(site);
    const CommunicationId devices({client().device_id(), destination.device_id()}, site);
    CollectiveGroup sends(devices, client().device_id(), Caller{client().stream_id(), site});
    CollectiveGroup receives(devices, destination.device_id(), Caller{destination.stream_id(), site});
    std::forward<Send>(send)(sends);
    std::forward<Receive>(receive)(receives);
    const auto group = group_of(devices, site);
    client().submit(site, "to_client", [](Server&, const Caller&) {});  // waits for room here, not inside the lock
    const std::lock_guard together(group->pairing());
    const detail::ExceedCapacity exceed;
    communicate(group, std::move(sends), site);
    try {
      destination.communicate(group, std::move(receives), site);
    } catch (...) {
      group->abort(std::current_exception());
      throw;
    }
  }

  template <class Group>
  void communicate(std::shared_ptr<Group> group, CollectiveGroup calls, const Site& site) const {
    client().submit(site, "collective",
                    [group = std::move(group), calls = std::move(calls).take_calls(),
                     pending = client().pending_collective()](Server& server, const Caller& caller) mutable {
                      server.communicate(std::move(group), std::move(calls), caller, SubmitMode::Batched);
                    });
  }

  static void require_elements(std::size_t bytes, ElementType type, const Site& site, bool exactly = false) {
    const std::size_t size = element_size(type);
    if (exactly ? bytes == size : bytes % size == 0) return;
    throw CollectiveError(CollectiveError::Kind::Validation,
                          "no transfer: " + std::to_string(bytes) + " bytes are no " + std::string(to_string(type)),
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
