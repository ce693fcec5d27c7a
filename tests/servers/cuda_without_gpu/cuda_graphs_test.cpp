// Graphs of the CUDA server over a stand-in for the driver.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
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
    REQUIRE(gpus.undestroyed_objects().empty());
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

// The replay waits on the host: for an upload of the copy threads, which waits for a kernel of another stream.
TEST_CASE("L11: a graph that is dropped keeps its host memory until a replay that is pending has read it") {
  FakeGpus gpus;
  const CudaClient client = gpus.client();
  const CudaClient holding = gpus.client();
  const CudaClient writing = gpus.client();
  constexpr std::size_t count = 1024;
  constexpr std::size_t large = std::size_t{1} << 18U;
  const auto filled = [](std::size_t size, std::uint32_t value) { return Bytes::copy_of(Numbers(size, value)); };
  const Handle uploaded = client.create(filled(large, 0));
  const Handle memory = client.create(filled(count, 1));
  const Handle others = writing.create(filled(count, 2));
  client.graph_prepare();
  client.graph_start_capture();
  client.write(memory, filled(count, 3));
  std::optional graph(client.graph_stop_capture());
  client.sync().get();
  writing.sync().get();
  gpus.hold(holding, uploaded);
  client.write(uploaded, filled(large, 4));
  gpus.append(client, uploaded, 1);  // not issued before the upload is
  graph->replay();
  graph.reset();
  gpus.pass(0);
  writing.flush();                                                      // checks how far all streams have come
  for (int i = 0; i < 8; ++i) writing.write(others, filled(count, 5));  // through page-locked memory of the device
  gpus.pass(0);
  gpus.release();
  const bool right = client.read_one(memory).to_vector<std::uint32_t>() == Numbers(count, 3);
  CHECK(right);
}

// A graph of the driver has a fixed count; a host device records such a launch (client_launch_test.cpp).
TEST_CASE("A launch with a dynamic cube count fails the capture that it is in, and the stream goes on") {
  FakeGpus gpus;
  const CudaClient client = gpus.client();
  const Handle cubes = client.create(Bytes::copy_of(Numbers{1, 1, 1}));
  const Handle memory = client.create(Bytes::zeroed(64));
  client.sync().get();
  client.graph_prepare();
  client.graph_start_capture();
  gpus.append_dynamic(client, cubes, memory, 1);
  std::string message;
  try {
    static_cast<void>(client.graph_stop_capture());
  } catch (const ServerError& error) {
    CHECK(error.kind() == ServerError::Kind::Graph);
    REQUIRE(error.cause() != nullptr);
    message = message_of([&] { std::rethrow_exception(error.cause()); });
  }
  CHECK_THAT(message, Catch::Matchers::ContainsSubstring("dynamic cube count"));
  client.sync().get();
  gpus.append_dynamic(client, cubes, memory, 2);
  client.sync().get();
  CHECK(gpus.appended() == Numbers{2});
}
