// Graphs of the CUDA server over a stand-in for the driver.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/server_error.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

using Numbers = std::vector<std::uint32_t>;

/// Appends 1, writes `content`, appends 2; a graph of that, after a rehearsal.
Graph<CudaClient> captured(const CudaClient& client, const Handle& memory, const Numbers& content) {
  const auto work = [&] {
    FakeGpus::append(client, memory, 1);
    client.write(memory, Bytes::copy_of(content));
    FakeGpus::append(client, memory, 2);
  };
  client.graph_prepare();
  work();
  client.graph_start_capture();
  work();
  return client.graph_stop_capture();
}

/// Ends the rehearsal or the capture that the stream may be in.
void leave_capture(const CudaClient& client) {
  Attempts attempt;
  attempt([&] { client.graph_start_capture(); });
  attempt([&] { static_cast<void>(client.graph_stop_capture()); });
}

/// How often all of it has run, if it has never run in part.
std::optional<std::size_t> whole_runs(const Numbers& appended) {
  for (std::size_t i = 0; i < appended.size(); ++i)
    if (appended[i] != 1 + i % 2) return std::nullopt;
  if (appended.size() % 2 != 0) return std::nullopt;
  return appended.size() / 2;
}

}  // namespace

TEST_CASE("A graph's work runs whole and in its order, as often as it is replayed") {
  FakeGpus gpus;
  const CudaClient client = gpus.client();
  const Numbers content(300, 7);
  const Handle memory = client.create(Bytes::zeroed(content.size() * sizeof(std::uint32_t)));
  {
    const auto graph = captured(client, memory, content);
    client.write(memory, Bytes::zeroed(memory.size_in_used()));
    for (int i = 0; i < 20; ++i) graph.replay();
  }
  CHECK(client.read_one(memory).to_vector<std::uint32_t>() == content);
  CHECK(whole_runs(gpus.appended()) == 21);  // with the rehearsal
  const std::lock_guard lock(gpus.fake.mutex);
  CHECK(gpus.fake.misuse.empty());
}

TEST_CASE("Whichever call of the driver fails, a graph is refused or whole, and its replays are told or right") {
  const Numbers content(300, 7);
  for (int calls = 0;; ++calls) {
    FakeGpus gpus;
    INFO("call " << calls);
    std::optional<CudaClient> client = gpus.client();
    client->sync().get();
    Attempts attempt;
    gpus.fail_after(calls);
    std::optional<Handle> memory;
    Numbers found;
    attempt([&] {
      memory = client->create(Bytes::zeroed(content.size() * sizeof(std::uint32_t)));
      const auto graph = captured(*client, *memory, content);
      for (int i = 0; i < 2; ++i) graph.replay();
      found = client->read_one(*memory).to_vector<std::uint32_t>();
    });
    attempt([&] { client->sync().get(); });
    const char* const failed = gpus.stop_failing();
    INFO((failed != nullptr ? failed : "nothing") << " has failed\n" << attempt.said());
    if (failed == nullptr) REQUIRE(!attempt.failed());
    if (!attempt.failed()) {
      REQUIRE(found == content);
      REQUIRE(whole_runs(gpus.appended()) == 3);
    }
    if (attempt.failed()) leave_capture(*client);
    // The stream can be captured again, whatever came of that.
    const std::size_t before = gpus.appended().size();
    const Handle another = client->create(Bytes::zeroed(content.size() * sizeof(std::uint32_t)));
    captured(*client, another, content).replay();
    REQUIRE(client->read_one(another).to_vector<std::uint32_t>() == content);
    REQUIRE(gpus.appended().size() == before + 4);
    client.reset();
    memory.reset();
    REQUIRE(gpus.left_over().empty());
    if (failed != nullptr) continue;
    REQUIRE(calls > 20);
    break;
  }
}

TEST_CASE("Whenever the GPUs fault, whoever captures or replays is told, and the process goes on") {
  const Numbers content(300, 7);
  for (int calls = 0;; ++calls) {
    FakeGpus gpus;
    INFO("after " << calls << " calls");
    const CudaClient client = gpus.client();
    const Handle memory = client.create(Bytes::zeroed(content.size() * sizeof(std::uint32_t)));
    client.sync().get();
    gpus.fault_after(calls);
    Attempts attempt;
    attempt([&] {
      const auto graph = captured(client, memory, content);
      for (int i = 0; i < 2; ++i) graph.replay();
      static_cast<void>(client.read_one(memory));
    });
    attempt([&] { client.sync().get(); });
    if (!gpus.faulted()) {
      REQUIRE(!attempt.failed());
      REQUIRE(calls > 10);
      break;
    }
    REQUIRE(attempt.failed());
    REQUIRE_THROWS_AS(client.sync().get(), ServerError);
  }
}
