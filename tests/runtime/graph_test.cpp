#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/device_handle/service/device_thread_options.hpp>
#include <coxswain/runtime/client/graph.hpp>
#include <coxswain/runtime/communication/pending_collectives.hpp>

#include <latch>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using cox::Caller;
using cox::GraphId;
using cox::StreamId;

namespace {

/// What happened to graphs, written on the device thread; outlives it.
class Journal {
 public:
  void add(const std::string& what, GraphId id, const Caller& caller) {
    const std::lock_guard lock(mutex_);
    entries_.push_back(what + " " + std::to_string(id.value) + " on " + std::to_string(caller.stream.value) +
                       (caller.stream == StreamId::current() ? "" : " by another"));
  }
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(entries_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> entries_;
};

struct GraphServer {
  Journal* journal;
  void replay(GraphId id, cox::MembershipEpoch, const Caller& caller) { journal->add("replay", id, caller); }
  void graph_destroy(GraphId id, const Caller& caller) { journal->add("destroy", id, caller); }
};

struct GraphClient {
  cox::DeviceHandle<GraphServer> device;
  StreamId stream;

  [[nodiscard]] const cox::DeviceHandle<GraphServer>& device_handle() const noexcept { return device; }
  [[nodiscard]] StreamId stream_id() const noexcept { return stream; }
  [[nodiscard]] cox::PendingCollectives::Call pending_collective() const {
    return cox::PendingCollectives::Call(cox::PendingCollectives::for_device(device.device_id()));
  }
};

using Graph = cox::Graph<GraphClient>;
using Entries = std::vector<std::string>;

class OpenDevice {
 public:
  explicit OpenDevice(cox::DeviceId id = {.type = 77, .index = 3}) : device(id) {}
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;
  ~OpenDevice() { cox::shutdown(device); }

  Entries entries() {
    client.device.submit_blocking([](GraphServer&) {});
    return journal.take();
  }

  cox::DeviceId device;
  Journal journal;
  GraphClient client{cox::DeviceHandle<GraphServer>::insert(device, GraphServer{&journal}), StreamId{5}};
};

}  // namespace

TEST_CASE("A graph is replayed on the stream of its capture, from any thread, and is destroyed with its last copy") {
  OpenDevice open;
  std::optional<Graph> graph(Graph(open.client, GraphId{9}));
  REQUIRE(graph->id() == GraphId{9});
  REQUIRE(graph->stream_id() == StreamId{5});
  graph->replay();
  std::jthread([copy = *graph] { copy.replay(); }).join();
  std::optional<Graph> last = graph;
  graph.reset();
  REQUIRE(open.entries() == Entries{"replay 9 on 5", "replay 9 on 5"});
  last->replay();
  last.reset();
  REQUIRE(open.entries() == Entries{"replay 9 on 5", "destroy 9 on 5"});
}

TEST_CASE("Moving a graph and assigning over it destroys what was there, once") {
  OpenDevice open;
  {
    Graph one(open.client, GraphId{1});
    Graph two(open.client, GraphId{2});
    one = std::move(two);
    REQUIRE(open.entries() == Entries{"destroy 1 on 5"});
    const Graph& same = one;
    one = same;
    REQUIRE(open.entries().empty());
  }
  REQUIRE(open.entries() == Entries{"destroy 2 on 5"});
}

TEST_CASE("Dropping a graph does not wait for the device thread, and comes after the replays") {
  OpenDevice open;
  std::latch held(1);
  open.client.device.submit([&](GraphServer&) { held.wait(); });
  {
    const Graph graph(open.client, GraphId{3});
    graph.replay();
  }
  REQUIRE(open.journal.take().empty());  // we are past the destructor, and the device thread is still held
  held.count_down();
  REQUIRE(open.entries() == Entries{"replay 3 on 5", "destroy 3 on 5"});
}

TEST_CASE("A graph is dropped in peace on the device thread itself") {
  OpenDevice open;
  std::optional<Graph> graph(Graph(open.client, GraphId{4}));
  open.client.device.submit_blocking([&](GraphServer&) { graph.reset(); });
  REQUIRE(open.entries() == Entries{"destroy 4 on 5"});
}

TEST_CASE("L4: after a shutdown a graph cannot be replayed, and is dropped in peace") {
  Journal journal;
  const cox::DeviceId device{.type = 77, .index = 4};
  const GraphClient client{cox::DeviceHandle<GraphServer>::insert(device, GraphServer{&journal}), StreamId{5}};
  std::optional<Graph> graph(Graph(client, GraphId{5}));
  cox::shutdown(device);
  try {
    graph->replay();
    FAIL("a graph of a closed device was replayed");
  } catch (const cox::CallError& error) {
    CHECK(error.kind() == cox::CallError::Kind::Closed);
    CHECK(std::string(error.site().file_name()).ends_with("graph_test.cpp"));
  }
  graph.reset();
  REQUIRE(journal.take().empty());
}

TEST_CASE("L12: a graph that a full queue does not let go of is reported") {
  std::vector<std::string> reported;
  cox::set_task_error_callback([&](const cox::TaskError& task) {
    reported.push_back(std::to_string(task.stream.value) + ": " + cox::describe(task.error));
  });
  const cox::DeviceId device{.type = 77, .index = 5};
  cox::DeviceThreadOptions options;
  options.queue_capacity = 1;
  options.queue_policy = cox::QueuePolicy::Fail;
  cox::set_device_thread_options(device, options);
  {
    OpenDevice open(device);
    std::latch entered(1);
    std::latch held(1);
    std::optional<Graph> graph(Graph(open.client, GraphId{6}));
    // What opened the device may still be counted as queued for a moment.
    for (bool accepted = false; !accepted;) {
      try {
        open.client.device.submit([&](GraphServer&) {
          entered.count_down();
          held.wait();
        });
        accepted = true;
      } catch (const cox::CallError& error) {
        REQUIRE(error.kind() == cox::CallError::Kind::QueueFull);
      }
    }
    entered.wait();
    graph.reset();
    held.count_down();
    REQUIRE(reported.size() == 1);
    REQUIRE_THAT(reported.front(),
                 Catch::Matchers::ContainsSubstring("5: ") && Catch::Matchers::ContainsSubstring("queue_full"));
  }
  cox::set_task_error_callback({});
}
