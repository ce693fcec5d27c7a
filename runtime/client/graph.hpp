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

/// A captured graph: work of one stream that is queued as a whole. Cheap to copy; every copy may be used and dropped on
/// any thread. The server keeps the graph, and the memory that its work touches, until the last copy is gone and what
/// was queued of it before is done (L11), or until its device is shut down.
///
/// Client: has device_handle(), stream_id() and pending_collective(): what is kept while a replay is queued. The server
/// behind it has replay(GraphId, MembershipEpoch, const Caller&), whose failures join the stream's errors, and
/// graph_destroy(GraphId, const Caller&), which must not wait for the device.
template <class Client>
class Graph {
 public:
  using Site = std::source_location;

  /// Owns the graph `id` of the client's server from now on, which was captured on the client's stream. Throws
  /// std::bad_alloc; the graph is then destroyed.
  Graph(const Client& client, GraphId id, Site site = Site::current())
      : owner_(own({client, id, client.stream_id(), site})) {}

  // Precondition of all below: not moved from.
  [[nodiscard]] GraphId id() const noexcept { return owner_->captured.id; }
  /// The stream that the graph was captured on, and is replayed on.
  [[nodiscard]] StreamId stream_id() const noexcept { return owner_->captured.stream; }
  /// Queues the graph's work on its stream, whichever thread calls. Does not wait for the device. Throws CallError as
  /// every call; what fails later joins the stream's errors, such as CollectiveError Aborted for a collective of the
  /// graph with a device that was shut down before the replay came to it.
  void replay(Site site = Site::current()) const {
    const Captured& captured = owner_->captured;
    const StreamScope scope(captured.stream);  // L9
    captured.client.device_handle().submit(
        [id = captured.id, called = MembershipEpoch::current(), caller = Caller{captured.stream, site},
         pending = captured.client.pending_collective()](auto& server) { server.replay(id, called, caller); });
  }

 private:
  struct Captured {
    Client client;
    GraphId id;
    StreamId stream;
    Site site;

    /// Queued behind every replay, for whoever drops the last copy has seen those return (L1). Waits for nothing, but
    /// for room in the queue under QueuePolicy::Block, as every submit. A closed device has destroyed its graphs.
    void destroy() const noexcept {
      try {
        const StreamScope scope(stream);
        client.device_handle().submit(
            [id = id, caller = Caller{stream, site}](auto& server) { server.graph_destroy(id, caller); });
      } catch (const CallError& error) {
        if (error.kind() != CallError::Kind::Closed && error.kind() != CallError::Kind::Forked) report();
      } catch (...) {
        report();
      }
    }
    // The graph stays until the device is shut down: nobody is there to catch, and it must not go unnoticed (L12).
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
