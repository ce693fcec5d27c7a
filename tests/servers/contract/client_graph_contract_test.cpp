#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cox::test;
using cox::Bytes;
using cox::CallError;
using cox::Handle;
using cox::LaunchError;
using cox::ServerError;

namespace {

using Words = std::vector<std::uint32_t>;

/// What `work` queues on the client's stream, after one rehearsal.
template <class Client, class Work>
cox::Graph<Client> captured(const Client& client, Work work) {
  client.graph_prepare();
  work();
  client.graph_start_capture();
  work();
  return client.graph_stop_capture();
}
/// The same without a rehearsal.
template <class Client, class Work>
cox::Graph<Client> captured_at_once(const Client& client, Work work) {
  client.graph_prepare();
  client.graph_start_capture();
  work();
  return client.graph_stop_capture();
}

std::optional<ServerError::Kind> refused(auto&& f) { return kind_of<ServerError>(f); }
constexpr auto graph_error = ServerError::Kind::Graph;

/// What the end of a capture throws.
template <class Client>
ServerError failed_capture(const Client& client) {
  try {
    (void)client.graph_stop_capture();
  } catch (const ServerError& error) {
    return error;
  }
  FAIL("the capture did not fail");
  throw std::logic_error("not reached");
}

}  // namespace

TEMPLATE_TEST_CASE("A captured launch runs when the graph is replayed, as often as it is, and not before", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle input = upload(client, {1, 2, 3});
  const Handle output = client.empty(12);
  const auto work = [&] { launch(client, TestType::plus_one(input, output)); };
  client.graph_prepare();
  work();
  CHECK(content(client, output) == Words{2, 3, 4});  // a rehearsal runs
  client.write(output, Bytes::zeroed(12));
  client.graph_start_capture();
  work();
  const auto graph = client.graph_stop_capture();
  CHECK(content(client, output) == Words{0, 0, 0});
  graph.replay();
  CHECK(content(client, output) == Words{2, 3, 4});
  client.write(input, Bytes::copy_of(Words{10, 20, 30}));
  client.write(output, Bytes::zeroed(12));
  graph.replay();
  CHECK(content(client, output) == Words{11, 21, 31});
}

TEMPLATE_TEST_CASE("Writes and allocations are captured, too: a replay writes the bytes of the capture again", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle output = upload(client, {0, 0});
  const auto graph = captured(client, [&] {
    const Handle given = upload(client, {7, 8});
    const Handle doubled = client.empty(8);
    client.write(doubled, Bytes::copy_of(Words{1, 1}));
    launch(client, TestType::add_to(given, doubled));
    launch(client, TestType::add_to(doubled, output));
  });
  CHECK(content(client, output) == Words{8, 9});  // of the rehearsal
  graph.replay();
  graph.replay();
  CHECK(content(client, output) == Words{24, 27});
}

TEMPLATE_TEST_CASE("A graph has as many launches as one likes, each with its own arguments", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  Words expected{1, 2, 3};
  const Handle data = upload(client, expected);
  const auto graph = captured_at_once(client, [&] {
    for (std::uint32_t i = 0; i < 150; ++i) launch(client, TestType::multiply_add(data, 3, i));
  });
  for (int replay = 0; replay < 2; ++replay) {
    graph.replay();
    for (std::uint32_t i = 0; i < 150; ++i)
      for (auto& value : expected) value = 3 * value + i;
    CHECK(content(client, data) == expected);
  }
}

TEMPLATE_TEST_CASE("L11: memory of a graph is nobody else's between replays, also where its handles were dropped", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device({.memory = std::max(std::size_t{64} << 10U, TestType::min_memory), .threads = 1});
  const auto& client = device.client();
  const Handle input = upload(client, Words(256, 1));
  const Handle output = client.empty(1024);
  std::optional<Handle> sum = upload(client, Words(256));
  const auto graph = captured(client, [&] {
    const Handle passing = client.empty(1024);  // gone when the capture is over
    launch(client, TestType::plus_one(input, passing));
    launch(client, TestType::add_to(passing, *sum));
    launch(client, TestType::plus_one(*sum, output));
  });
  sum.reset();
  for (std::uint32_t replay = 1; replay <= 3; ++replay) {
    // Whatever is free is had by others, and keeps what they wrote.
    std::vector<Handle> others;
    for (std::uint32_t i = 0; i < 40; ++i) others.push_back(upload(client, Words(256, 1000 + i)));
    graph.replay();
    CHECK(content(client, output) == Words(256, 2 * (1 + replay) + 1));
    for (std::uint32_t i = 0; i < 40; ++i) REQUIRE(content(client, others[i]) == Words(256, 1000 + i));
  }
}

TEMPLATE_TEST_CASE("Growth of the pool in a capture is refused, and the capture ends with that as its cause", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = upload(client, {1});
  client.graph_prepare();
  client.graph_start_capture();
  const Handle grown = client.empty(std::size_t{64} << 20U);
  launch(client, TestType::fill(grown, 1));
  launch(client, TestType::fill(data, 2));
  const ServerError error = failed_capture(client);
  CHECK(error.kind() == graph_error);
  CHECK(mentions(error.what(), {device.name(), "67108864 B", "graph_prepare"}));
  CHECK(kind_in<ServerError>(error.cause()) == graph_error);
  // The stream is out of the capture and healthy, and has done none of it.
  CHECK(content(client, data) == Words{1});
  // With a rehearsal there is room.
  const auto graph = captured(client, [&] {
    const Handle large = client.empty(std::size_t{64} << 20U);
    launch(client, TestType::fill(large, 9));
    launch(client, TestType::copy(large, data));
  });
  client.write(data, Bytes::zeroed(4));
  graph.replay();
  CHECK(content(client, data) == Words{9});
}

TEMPLATE_TEST_CASE("Calls of a capture that are out of order are refused and change nothing", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = upload(client, {1});
  const auto prepare = [&] { client.graph_prepare(); };
  const auto start = [&] { client.graph_start_capture(); };
  const auto stop = [&] { (void)client.graph_stop_capture(); };
  CHECK(refused(start) == graph_error);
  CHECK(refused(stop) == graph_error);
  CHECK(mentions(message_of(stop), {"graph_stop_capture is out of order", "expected graph_prepare"}));
  prepare();
  CHECK(refused(prepare) == graph_error);
  CHECK(refused(stop) == graph_error);
  start();
  CHECK(refused(prepare) == graph_error);
  CHECK(refused(start) == graph_error);
  launch(client, TestType::fill(data, 5));
  const auto graph = client.graph_stop_capture();
  CHECK(refused(stop) == graph_error);
  CHECK(content(client, data) == Words{1});
  graph.replay();
  CHECK(content(client, data) == Words{5});
}

TEMPLATE_TEST_CASE("What a graph cannot hold is refused in a capture, and the graph is of the rest", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = upload(client, {1});
  const Bytes lazy = client.read_lazy(data);
  const auto earlier = captured_at_once(client, [&] { launch(client, TestType::fill(data, 2)); });
  client.graph_prepare();
  client.graph_start_capture();
  launch(client, TestType::fill(data, 5));
  CHECK(refused([&] { (void)client.read_one(data); }) == graph_error);
  CHECK(refused([&] { (void)client.read_async(std::vector<Handle>{data}).get(); }) == graph_error);
  CHECK(refused([&] { (void)lazy.data(); }) == graph_error);
  CHECK(refused([&] { client.sync().get(); }) == graph_error);
  CHECK(refused([&] { client.flush(); }) == graph_error);
  CHECK(refused([&] { (void)client.profile([] {}); }) == graph_error);
  CHECK(mentions(message_of([&] { client.flush(); }), {"a flush", device.name(), "capturing"}));
  const auto graph = client.graph_stop_capture();
  CHECK(content(client, data) == Words{1});
  graph.replay();
  CHECK(content(client, data) == Words{5});
  earlier.replay();
  CHECK(numbers(lazy) == Words{2});
}

TEMPLATE_TEST_CASE("A replay in a capture of its stream fails the capture, which can be made anew", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = upload(client, {1});
  const auto graph = captured_at_once(client, [&] { launch(client, TestType::fill(data, 2)); });
  client.graph_prepare();
  client.graph_start_capture();
  graph.replay();
  const ServerError error = failed_capture(client);
  CHECK(kind_in<ServerError>(error.cause()) == graph_error);
  CHECK(mentions(error.what(), {"a replay"}));
  CHECK(content(client, data) == Words{1});
  graph.replay();
  CHECK(content(client, data) == Words{2});
}

TEMPLATE_TEST_CASE(
    "L12: a launch that cannot be made fails the capture with the first cause, and the stream is healthy", "",
    COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = upload(client, {1});
  client.graph_prepare();
  client.graph_start_capture();
  launch(client, TestType::misused());
  client.write(data, Bytes::zeroed(3));
  launch(client, TestType::fill(data, 5));
  const ServerError error = failed_capture(client);
  CHECK(error.kind() == graph_error);
  CHECK(kind_in<LaunchError>(error.cause()) == LaunchError::Kind::ArgumentCount);
  CHECK(mentions(error.what(), {"'misused'"}));
  client.sync().get();
  CHECK(content(client, data) == Words{1});
  captured_at_once(client, [&] { launch(client, TestType::fill(data, 6)); }).replay();
  CHECK(content(client, data) == Words{6});
}

TEMPLATE_TEST_CASE(
    "L11: a graph that is dropped is replayed as often as it was asked to be, and then gives its memory back", "",
    COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = upload(client, {0});
  typename TestType::Gate gate(client);
  launch(client, gate.hold());
  gate.wait_until_entered();
  {
    const Handle one = upload(client, {1});
    const auto graph = captured_at_once(client, [&] { launch(client, TestType::add_to(one, data)); });
    for (int i = 0; i < 3; ++i) graph.replay();
  }
  if (TestType::graphs_stay_for_replays)  // `one` is the graph's, which waits for its turn
    CHECK(client.memory_usage().number_allocs == 2);
  gate.open();
  CHECK(content(client, data) == Words{3});
  client.sync().get();
  CHECK(client.memory_usage().number_allocs == 1);
}

TEMPLATE_TEST_CASE("A replay waits for work of other streams on its buffers, and they for it", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const auto other = device.on_new_stream();
  const Handle input = upload(client, {1});
  const Handle output = upload(client, {0});
  const auto graph = captured_at_once(client, [&] { launch(client, TestType::plus_one(input, output)); });

  // Read after write: the replay waits for the other stream's write of its input.
  typename TestType::Gate write(client);
  launch(other, write.fill(input, 5));
  write.wait_until_entered();
  graph.replay();
  auto read = client.read_async(std::vector<Handle>{output});
  CHECK_FALSE(read.ready());
  write.open();
  CHECK(numbers(read.get()[0]) == Words{6});

  // Write after read, read after write: the other stream waits for the replay, which stands behind a gate.
  typename TestType::Gate before(client);
  launch(client, before.hold());
  before.wait_until_entered();
  graph.replay();
  launch(other, TestType::fill(input, 8));
  const Handle copied = other.empty(4);
  launch(other, TestType::copy(output, copied));
  launch(other, TestType::fill(output, 9));
  auto seen = other.read_async(std::vector<Handle>{copied});
  CHECK_FALSE(seen.ready());
  before.open();
  CHECK(numbers(seen.get()[0]) == Words{6});
  CHECK(content(client, output) == Words{9});
}

TEMPLATE_TEST_CASE("Graphs are replayed from any thread, and interleave with work of many streams without loss", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device({.threads = 3});
  const auto& client = device.client();
  const Handle data = upload(client, {0, 0});
  const Handle one = upload(client, {1, 1});
  const auto graph = captured_at_once(client, [&] { launch(client, TestType::add_to(one, data)); });
  constexpr std::uint32_t turns = 100;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t)
      threads.emplace_back([graph] {
        for (std::uint32_t i = 0; i < turns; ++i) graph.replay();
      });
    for (int t = 0; t < 2; ++t)
      threads.emplace_back([&, stream = device.on_new_stream()] {
        for (std::uint32_t i = 0; i < turns; ++i) launch(stream, TestType::add_to(one, data));
      });
  }
  CHECK(content(client, data) == Words(2, 4 * turns));
}

TEMPLATE_TEST_CASE("A stream captures alone: others run meanwhile, and capture graphs of their own", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto first = device.on_new_stream();
  const auto second = device.on_new_stream();
  const auto third = device.on_new_stream();
  const Handle data = upload(first, {0});
  const Handle others = upload(third, {0});
  first.graph_prepare();
  second.graph_prepare();
  first.graph_start_capture();
  launch(first, TestType::fill(data, 1));
  second.graph_start_capture();
  launch(third, TestType::fill(others, 7));
  CHECK(content(third, others) == Words{7});
  launch(second, TestType::fill(data, 2));
  CHECK(refused([&] { (void)third.read_one(data); }) == graph_error);
  const auto of_first = first.graph_stop_capture();
  CHECK(refused([&] { second.flush(); }) == graph_error);
  first.flush();
  CHECK(refused([&] { (void)third.read_one(data); }) == graph_error);  // the second capture goes on
  const auto of_second = second.graph_stop_capture();
  CHECK(content(third, data) == Words{0});
  of_second.replay();
  CHECK(content(third, data) == Words{2});
  of_first.replay();
  CHECK(content(third, data) == Words{1});
  CHECK(of_first.stream_id() == first.stream_id());
}

TEMPLATE_TEST_CASE("L13: a graph may outlive its device, which gives back all of its memory", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  std::optional<OpenDevice<TestType>> device(std::in_place);
  const auto& client = device->client();
  const Handle data = upload(client, {0});
  std::optional graph = captured(client, [&] { launch(client, TestType::fill(client.empty(4), 1)); });
  graph->replay();
  device.reset();
  CHECK(kind_of<CallError>([&] { graph->replay(); }) == CallError::Kind::Closed);
  OpenDevice<TestType> again;
  CHECK(kind_of<CallError>([&] { graph->replay(); }) == CallError::Kind::Closed);  // it is of the former device
  graph.reset();
  CHECK(again.client().memory_usage() == cox::MemoryUsage{});
}

TEMPLATE_TEST_CASE("L13: a device may be closed in the middle of a capture", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = upload(client, {0});
  client.graph_prepare();
  client.graph_start_capture();
  launch(client, TestType::fill(data, 1));
  CHECK(cox::shutdown(device.device()) == cox::ShutdownOutcome::Drained);
  CHECK(kind_of<CallError>([&] { (void)client.graph_stop_capture(); }) == CallError::Kind::Closed);
}

TEMPLATE_TEST_CASE("L13: when graph and handles are dropped, all memory is there again", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  {
    const Handle input = upload(client, {1, 2});
    const Handle output = client.empty(8);
    const auto graph = captured(client, [&] {
      const Handle passing = client.empty(8);
      const Handle unused = client.empty(std::size_t{1} << 20U);
      launch(client, TestType::plus_one(input, passing));
      launch(client, TestType::plus_one(passing, output));
    });
    const auto copy = graph;
    graph.replay();
    copy.replay();
    CHECK(content(client, output) == Words{3, 4});
    CHECK(client.memory_usage().number_allocs == 4);
  }
  client.sync().get();
  client.memory_cleanup();
  CHECK(client.memory_usage().number_allocs == 0);
  CHECK(client.memory_usage().bytes_reserved == 0);
  // A capture that fails keeps nothing either.
  client.graph_prepare();
  client.graph_start_capture();
  (void)client.empty(8);
  launch(client, TestType::misused());
  (void)failed_capture(client);
  CHECK(client.memory_usage().number_allocs == 0);
}

TEMPLATE_TEST_CASE("Memory that a capture writes is refused on other streams until the capture has ended", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const auto other = device.on_new_stream();
  const Handle written = upload(client, Words(100, 1));
  const Handle read = upload(client, Words(100, 2));
  const Handle rewritten = upload(client, Words(100, 3));
  client.sync().get();
  const auto of_other = [&](auto&& f) {
    f();
    try {
      other.sync().get();
    } catch (const ServerError& unhealthy) {
      return refused([&] { std::rethrow_exception(unhealthy.cause()); });
    }
    return std::optional<ServerError::Kind>();
  };
  client.graph_prepare();
  client.graph_start_capture();
  launch(client, TestType::plus_one(read, written));
  client.write(rewritten, Bytes::copy_of(Words(100, 4)));
  for (const Handle& each : {written, rewritten}) {
    CHECK(refused([&] { (void)other.read_one(each); }) == graph_error);
    CHECK(of_other([&] { launch(other, TestType::fill(each, 9)); }) == graph_error);
    CHECK(of_other([&] { launch(other, TestType::copy(each, other.empty(400))); }) == graph_error);
    CHECK(of_other([&] { other.write(each, Bytes::zeroed(400)); }) == graph_error);
    CHECK(refused([&] { (void)other.get_resource(each); }) == graph_error);
  }
  CHECK(content(other, read) == Words(100, 2));  // what it reads is anybody's
  auto graph = client.graph_stop_capture();
  CHECK(content(other, written) == Words(100, 1));
  graph.replay();
  CHECK(content(other, written) == Words(100, 3));
  CHECK(content(other, rewritten) == Words(100, 4));
  other.sync().get();
}

TEMPLATE_TEST_CASE("Memory of a capture that failed is everybody's again", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const auto other = device.on_new_stream();
  const Handle data = upload(client, Words(100, 1));
  client.sync().get();
  client.graph_prepare();
  client.graph_start_capture();
  launch(client, TestType::fill(data, 7));
  launch(client, TestType::misused());
  CHECK(refused([&] { (void)other.read_one(data); }) == graph_error);
  CHECK(failed_capture(client).kind() == graph_error);
  CHECK(content(other, data) == Words(100, 1));
}
