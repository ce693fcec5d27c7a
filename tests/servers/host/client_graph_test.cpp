#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/call_error.hpp>
#include <coxswain/runtime/io_error.hpp>
#include <coxswain/runtime/launch_error.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>
#include <coxswain/runtime/server_error.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cox::test;
using cox::Access;
using cox::Bytes;
using cox::CallError;
using cox::CubeCount;
using cox::Handle;
using cox::HostClient;
using cox::HostKernel;
using cox::KernelArguments;
using cox::LaunchError;
using cox::ServerError;

namespace {

using Graph = cox::Graph<HostClient>;
using Numbers = std::vector<std::uint32_t>;

/// What `work` queues on the client's stream, after one rehearsal.
template <class Work>
Graph captured(const HostClient& client, Work work) {
  client.graph_prepare();
  work();
  client.graph_start_capture();
  work();
  return client.graph_stop_capture();
}
/// The same without a rehearsal.
template <class Work>
Graph captured_at_once(const HostClient& client, Work work) {
  client.graph_prepare();
  client.graph_start_capture();
  work();
  return client.graph_stop_capture();
}

/// Buffer 1 becomes buffer 0 plus one.
HostKernel plus_one() {
  return {"plus_one", {}, 2, [](const cox::KernelContext& context) {
            const auto from = context.buffer<const std::uint32_t>(0);
            const auto to = context.buffer<std::uint32_t>(1);
            for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i] + 1;
          }};
}
/// Buffer 1 becomes its sum with buffer 0.
HostKernel add_to() {
  return {"add_to", {}, 2, [](const cox::KernelContext& context) {
            const auto from = context.buffer<const std::uint32_t>(0);
            const auto to = context.buffer<std::uint32_t>(1);
            for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
          }};
}

void run(const HostClient& client, HostKernel kernel, const Handle& from, const Handle& to) {
  client.launch(std::move(kernel), CubeCount::single(),
                KernelArguments{}.with_buffer(from, Access::Read).with_buffer(to));
}
void fill(const HostClient& client, const Handle& data, std::uint32_t value) {
  client.launch(fill_kernel(), CubeCount::single(), KernelArguments{}.with_buffer(data).with_scalar(value));
}
Numbers content(const HostClient& client, const Handle& data) { return numbers(client.read_one(data)); }

std::optional<ServerError::Kind> refused(auto&& f) { return kind_of<ServerError>(f); }
constexpr auto graph_error = ServerError::Kind::Graph;

template <class E>
std::optional<typename E::Kind> kind(const std::exception_ptr& error) {
  return kind_of<E>([&] { std::rethrow_exception(error); });
}

/// What the end of a capture throws.
ServerError failed_capture(const HostClient& client) {
  try {
    (void)client.graph_stop_capture();
  } catch (const ServerError& error) {
    return error;
  }
  FAIL("the capture did not fail");
  throw std::logic_error("not reached");
}

}  // namespace

TEST_CASE("A captured launch runs when the graph is replayed, as often as it is, and not before") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle input = upload(client, {1, 2, 3});
  const Handle output = client.empty(12);
  const auto work = [&] { run(client, plus_one(), input, output); };
  client.graph_prepare();
  work();
  CHECK(content(client, output) == Numbers{2, 3, 4});  // a rehearsal runs
  client.write(output, Bytes::zeroed(12));
  client.graph_start_capture();
  work();
  const Graph graph = client.graph_stop_capture();
  CHECK(content(client, output) == Numbers{0, 0, 0});
  graph.replay();
  CHECK(content(client, output) == Numbers{2, 3, 4});
  client.write(input, Bytes::copy_of(Numbers{10, 20, 30}));
  client.write(output, Bytes::zeroed(12));
  graph.replay();
  CHECK(content(client, output) == Numbers{11, 21, 31});
}

TEST_CASE("Writes and allocations are captured, too: a replay writes the bytes of the capture again") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle output = upload(client, {0, 0});
  const Graph graph = captured(client, [&] {
    const Handle given = upload(client, {7, 8});
    const Handle doubled = client.empty(8);
    client.write(doubled, Bytes::copy_of(Numbers{1, 1}));
    run(client, add_to(), given, doubled);
    run(client, add_to(), doubled, output);
  });
  CHECK(content(client, output) == Numbers{8, 9});  // of the rehearsal
  graph.replay();
  graph.replay();
  CHECK(content(client, output) == Numbers{24, 27});
}

TEST_CASE("A graph has as many launches as one likes, each with its own arguments") {
  OpenHost host;
  const HostClient& client = host.client();
  Numbers expected{1, 2, 3};
  const Handle data = upload(client, expected);
  const Graph graph = captured_at_once(client, [&] {
    for (std::uint32_t i = 0; i < 150; ++i)
      client.launch(multiply_add(), CubeCount::single(),
                    KernelArguments{}.with_buffer(data).with_scalar(std::uint32_t{3}).with_scalar(i));
  });
  for (int replay = 0; replay < 2; ++replay) {
    graph.replay();
    for (std::uint32_t i = 0; i < 150; ++i)
      for (auto& value : expected) value = 3 * value + i;
    CHECK(content(client, data) == expected);
  }
}

TEST_CASE("L11: memory of a graph is nobody else's between replays, also where its handles were dropped") {
  OpenHost host({.device_count = 1, .threads_per_device = 1, .memory_capacity = 64 << 10});
  const HostClient& client = host.client();
  const Handle input = upload(client, Numbers(256, 1));
  const Handle output = client.empty(1024);
  std::optional<Handle> sum = upload(client, Numbers(256));
  const Graph graph = captured(client, [&] {
    const Handle passing = client.empty(1024);  // gone when the capture is over
    run(client, plus_one(), input, passing);
    run(client, add_to(), passing, *sum);
    run(client, plus_one(), *sum, output);
  });
  sum.reset();
  for (std::uint32_t replay = 1; replay <= 3; ++replay) {
    // Whatever is free is had by others, and keeps what they wrote.
    std::vector<Handle> others;
    for (std::uint32_t i = 0; i < 40; ++i) others.push_back(upload(client, Numbers(256, 1000 + i)));
    graph.replay();
    CHECK(content(client, output) == Numbers(256, 2 * (1 + replay) + 1));
    for (std::uint32_t i = 0; i < 40; ++i) REQUIRE(content(client, others[i]) == Numbers(256, 1000 + i));
  }
}

TEST_CASE("Growth of the pool in a capture is refused, and the capture ends with that as its cause") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle data = upload(client, {1});
  client.graph_prepare();
  client.graph_start_capture();
  const Handle grown = client.empty(std::size_t{64} << 20U);
  fill(client, grown, 1);
  fill(client, data, 2);
  const ServerError error = failed_capture(client);
  CHECK(error.kind() == graph_error);
  CHECK(mentions(error.what(), {"DeviceId(type=0, index=0)", "67108864 B", "graph_prepare"}));
  CHECK(kind<ServerError>(error.cause()) == graph_error);
  // The stream is out of the capture and healthy, and has done none of it.
  CHECK(content(client, data) == Numbers{1});
  // With a rehearsal there is room.
  const Graph graph = captured(client, [&] {
    const Handle large = client.empty(std::size_t{64} << 20U);
    fill(client, large, 9);
    client.launch(copy_kernel(), CubeCount::single(),
                  KernelArguments{}.with_buffer(large, Access::Read).with_buffer(data));
  });
  client.write(data, Bytes::zeroed(4));
  graph.replay();
  CHECK(content(client, data) == Numbers{9});
}

TEST_CASE("Calls of a capture that are out of order are refused and change nothing") {
  OpenHost host;
  const HostClient& client = host.client();
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
  fill(client, data, 5);
  const Graph graph = client.graph_stop_capture();
  CHECK(refused(stop) == graph_error);
  CHECK(content(client, data) == Numbers{1});
  graph.replay();
  CHECK(content(client, data) == Numbers{5});
}

TEST_CASE("What a graph cannot hold is refused in a capture, and the graph is of the rest") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle data = upload(client, {1});
  const Bytes lazy = client.read_lazy(data);
  const Graph earlier = captured_at_once(client, [&] { fill(client, data, 2); });
  client.graph_prepare();
  client.graph_start_capture();
  fill(client, data, 5);
  CHECK(refused([&] { (void)client.read_one(data); }) == graph_error);
  CHECK(refused([&] { (void)client.read_async(std::vector<Handle>{data}).get(); }) == graph_error);
  CHECK(refused([&] { (void)lazy.data(); }) == graph_error);
  CHECK(refused([&] { client.sync().get(); }) == graph_error);
  CHECK(refused([&] { client.flush(); }) == graph_error);
  CHECK(refused([&] { (void)client.profile([] {}); }) == graph_error);
  CHECK(mentions(message_of([&] { client.flush(); }), {"a flush", "DeviceId(type=0, index=0)", "capturing"}));
  const Graph graph = client.graph_stop_capture();
  CHECK(content(client, data) == Numbers{1});
  graph.replay();
  CHECK(content(client, data) == Numbers{5});
  earlier.replay();
  CHECK(numbers(lazy) == Numbers{2});
}

TEST_CASE("A replay in a capture of its stream fails the capture, which can be made anew") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle data = upload(client, {1});
  const Graph graph = captured_at_once(client, [&] { fill(client, data, 2); });
  client.graph_prepare();
  client.graph_start_capture();
  graph.replay();
  const ServerError error = failed_capture(client);
  CHECK(kind<ServerError>(error.cause()) == graph_error);
  CHECK(mentions(error.what(), {"a replay"}));
  CHECK(content(client, data) == Numbers{1});
  graph.replay();
  CHECK(content(client, data) == Numbers{2});
}

TEST_CASE("L12: a launch that cannot be made fails the capture with the first cause, and the stream is healthy") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle data = upload(client, {1});
  client.graph_prepare();
  client.graph_start_capture();
  client.launch(fill_kernel(), CubeCount::single(), {});
  client.write(data, Bytes::zeroed(3));
  fill(client, data, 5);
  const ServerError error = failed_capture(client);
  CHECK(error.kind() == graph_error);
  CHECK(kind<LaunchError>(error.cause()) == LaunchError::Kind::ArgumentCount);
  CHECK(mentions(error.what(), {"'fill'"}));
  client.sync().get();
  CHECK(content(client, data) == Numbers{1});
  captured_at_once(client, [&] { fill(client, data, 6); }).replay();
  CHECK(content(client, data) == Numbers{6});
}

TEST_CASE("L5: a launch that fails in a replay ends it, joins the stream's failures, and the next replay runs") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle data = upload(client, {0});
  const Handle behind = upload(client, {0});
  const Handle limit = upload(client, {1});
  const HostKernel fussy{"fussy", {}, 2, [](const cox::KernelContext& context) {
                           if (++context.buffer<std::uint32_t>(0)[0] == context.buffer<const std::uint32_t>(1)[0])
                             throw std::runtime_error("as it should");
                         }};
  const Graph graph = captured_at_once(client, [&] {
    client.launch(fussy, CubeCount::single(), KernelArguments{}.with_buffer(data).with_buffer(limit, Access::Read));
    run(client, copy_kernel(), data, behind);
  });
  graph.replay();
  try {
    client.sync().get();
    FAIL("the failure was not told");
  } catch (const ServerError& error) {
    CHECK(kind<LaunchError>(error.cause()) == LaunchError::Kind::KernelFailed);
  }
  CHECK(content(client, behind) == Numbers{0});
  graph.replay();
  CHECK(content(client, behind) == Numbers{2});
}

TEST_CASE("L11: a graph that is dropped is replayed as often as it was asked to be, and then gives its memory back") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle data = upload(client, {0});
  Gate gate;
  client.launch(gate.kernel(0), CubeCount::single(), {});
  gate.wait_until_entered();
  {
    const Handle one = upload(client, {1});
    const Graph graph = captured_at_once(client, [&] { run(client, add_to(), one, data); });
    for (int i = 0; i < 3; ++i) graph.replay();
  }
  CHECK(client.memory_usage().number_allocs == 2);  // `one` is the graph's, which waits for its turn
  gate.open();
  CHECK(content(client, data) == Numbers{3});
  client.sync().get();
  CHECK(client.memory_usage().number_allocs == 1);
}

TEST_CASE("A replay waits for work of other streams on its buffers, and they for it") {
  OpenHost host;
  const HostClient& client = host.client();
  const HostClient other = host.on_new_stream();
  const Handle input = upload(client, {1});
  const Handle output = upload(client, {0});
  const Graph graph = captured_at_once(client, [&] { run(client, plus_one(), input, output); });

  // Read after write: the replay waits for the other stream's write of its input.
  Gate write;
  other.launch(write.kernel(1, [](const auto& context) { context.template buffer<std::uint32_t>(0)[0] = 5; }),
               CubeCount::single(), KernelArguments{}.with_buffer(input));
  write.wait_until_entered();
  graph.replay();
  auto read = client.read_async(std::vector<Handle>{output});
  CHECK_FALSE(read.ready());
  write.open();
  CHECK(numbers(read.get()[0]) == Numbers{6});

  // Write after read, read after write: the other stream waits for the replay, which stands behind a gate.
  Gate before;
  client.launch(before.kernel(0), CubeCount::single(), {});
  before.wait_until_entered();
  graph.replay();
  fill(other, input, 8);
  const Handle copied = other.empty(4);
  run(other, copy_kernel(), output, copied);
  fill(other, output, 9);
  auto seen = other.read_async(std::vector<Handle>{copied});
  CHECK_FALSE(seen.ready());
  before.open();
  CHECK(numbers(seen.get()[0]) == Numbers{6});
  CHECK(content(client, output) == Numbers{9});
}

TEST_CASE("Graphs are replayed from any thread, and interleave with work of many streams without loss") {
  OpenHost host({.device_count = 1, .threads_per_device = 3});
  const HostClient& client = host.client();
  const Handle data = upload(client, {0, 0});
  const Handle one = upload(client, {1, 1});
  const Graph graph = captured_at_once(client, [&] { run(client, add_to(), one, data); });
  constexpr std::uint32_t turns = 100;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t)
      threads.emplace_back([graph] {
        for (std::uint32_t i = 0; i < turns; ++i) graph.replay();
      });
    for (int t = 0; t < 2; ++t)
      threads.emplace_back([&, stream = host.on_new_stream()] {
        for (std::uint32_t i = 0; i < turns; ++i) run(stream, add_to(), one, data);
      });
  }
  CHECK(content(client, data) == Numbers(2, 4 * turns));
}

TEST_CASE("A stream captures alone: others run meanwhile, and capture graphs of their own") {
  OpenHost host;
  const HostClient first = host.on_new_stream();
  const HostClient second = host.on_new_stream();
  const HostClient third = host.on_new_stream();
  const Handle data = upload(first, {0});
  const Handle others = upload(third, {0});
  first.graph_prepare();
  second.graph_prepare();
  first.graph_start_capture();
  fill(first, data, 1);
  second.graph_start_capture();
  fill(third, others, 7);
  CHECK(content(third, others) == Numbers{7});
  fill(second, data, 2);
  CHECK(content(third, data) == Numbers{0});
  const Graph of_first = first.graph_stop_capture();
  CHECK(refused([&] { second.flush(); }) == graph_error);
  first.flush();
  const Graph of_second = second.graph_stop_capture();
  of_second.replay();
  CHECK(content(third, data) == Numbers{2});
  of_first.replay();
  CHECK(content(third, data) == Numbers{1});
  CHECK(of_first.stream_id() == first.stream_id());
}

TEST_CASE("L13: a graph may outlive its device, which gives back all of its memory") {
  std::optional<OpenHost> host(std::in_place);
  const HostClient& client = host->client();
  const Handle data = upload(client, {0});
  std::optional<Graph> graph = captured(client, [&] { fill(client, client.empty(4), 1); });
  graph->replay();
  host.reset();
  CHECK(kind_of<CallError>([&] { graph->replay(); }) == CallError::Kind::Closed);
  OpenHost again;
  CHECK(kind_of<CallError>([&] { graph->replay(); }) == CallError::Kind::Closed);  // it is of the former device
  graph.reset();
  CHECK(again.client().memory_usage() == cox::MemoryUsage{});
}

TEST_CASE("L13: a device may be closed in the middle of a capture") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle data = upload(client, {0});
  client.graph_prepare();
  client.graph_start_capture();
  fill(client, data, 1);
  CHECK(cox::shutdown(host.device()) == cox::ShutdownOutcome::Drained);
  CHECK(kind_of<CallError>([&] { (void)client.graph_stop_capture(); }) == CallError::Kind::Closed);
}

TEST_CASE("L13: when graph and handles are dropped, all memory is there again") {
  OpenHost host;
  const HostClient& client = host.client();
  {
    const Handle input = upload(client, {1, 2});
    const Handle output = client.empty(8);
    const Graph graph = captured(client, [&] {
      const Handle passing = client.empty(8);
      const Handle unused = client.empty(std::size_t{1} << 20U);
      run(client, plus_one(), input, passing);
      run(client, plus_one(), passing, output);
    });
    const Graph copy = graph;
    graph.replay();
    copy.replay();
    CHECK(content(client, output) == Numbers{3, 4});
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
  client.launch(fill_kernel(), CubeCount::single(), {});
  (void)failed_capture(client);
  CHECK(client.memory_usage().number_allocs == 0);
}
