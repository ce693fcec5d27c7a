#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/client/graph_id.hpp>
#include <coxswain/runtime/communication/membership_epoch.hpp>

#include <exception>
#include <memory>
#include <source_location>
#include <utility>

namespace cox {

/// A captured graph: work of one stream that is queued as a whole. Inexpensive to copy; every copy may be used and
/// dropped on any thread. The server keeps the graph, and the memory that its work touches, until the last copy has
/// been destroyed and its queued replays have completed (L11), or until its device is shut down.
///
/// Client: has device_handle(), stream_id() and pending_collective(), whose result is kept while a replay is queued.
/// Its server has replay(GraphId, MembershipEpoch, const Caller&), whose failures join the stream's errors, and
/// graph_destroy(GraphId, const Caller&), which must not wait for the device.
template <class Client>
class Graph {
 public:
  using Site = std::source_location;

  /// Takes ownership of the graph `id` of the client's server, which was captured on the client's stream. Throws
  /// std::bad_alloc; the graph is then destroyed.
  Graph(const Client& client, GraphId id, Site site = Site::current())
      : owner_(own({client, id, client.stream_id(), site})) {}

  // Precondition of all functions below: this has not been moved from.
  [[nodiscard]] GraphId id() const noexcept { return owner_->captured.id; }
  /// The stream on which the graph was captured and is replayed.
  [[nodiscard]] StreamId stream_id() const noexcept { return owner_->captured.stream; }
  /// Queues the graph's work on its stream, whichever thread calls. Does not wait for the device. Throws CallError as
  /// every call does. A later failure joins the stream's errors, such as CollectiveError Aborted for a collective of
  /// the graph with a device that was shut down after this call and before the replay ran.
  void replay(Site site = Site::current()) const {
    const Captured& captured = owner_->captured;
    const StreamScope scope(captured.stream);  // L9
    captured.client.device_handle().submit(
        [id = captured.id, called = MembershipEpoch::current(), caller = Caller{captured.stream, site},
         pending = captured.client.pending_collective()](auto& server) { server.replay(id, called, caller); },
        site);
  }

 private:
  struct Captured {
    Client client;
    GraphId id;
    StreamId stream;
    Site site;

    /// Destroys the graph by a call that is queued after every replay: the last copy is dropped after all replay()
    /// calls have returned (L1). Does not block, except for capacity of the queue under QueuePolicy::Block, as every
    /// submit. A closed device has already destroyed its graphs.
    void destroy() const noexcept {
      try {
        const StreamScope scope(stream);
        client.device_handle().submit(
            [id = id, caller = Caller{stream, site}](auto& server) { server.graph_destroy(id, caller); }, site);
      } catch (const CallError& error) {
        if (error.kind() != CallError::Kind::Closed && error.kind() != CallError::Kind::Forked) report();
      } catch (...) {
        report();
      }
    }
    // The graph is kept until the device is shut down. A destructor cannot throw, so the failure is reported as a task
    // error (L12).
    void report() const noexcept {
      report_task_error({client.device_handle().device_id(), stream, std::current_exception()});
    }
  };
  struct Owner {
    explicit Owner(Captured&& what) noexcept : captured(std::move(what)) {}
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;
    ~Owner() { captured.destroy(); }

    Captured captured;
  };

  static std::shared_ptr<const Owner> own(Captured captured) {
    try {
      return std::make_shared<const Owner>(std::move(captured));
    } catch (...) {
      captured.destroy();
      throw;
    }
  }

  std::shared_ptr<const Owner> owner_;
};

}  // namespace cox
