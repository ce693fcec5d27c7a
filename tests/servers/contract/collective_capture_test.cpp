// H11: collectives and captures (seed-semantics 3.10).

#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

using namespace cox;
using namespace cox::test;

TEMPLATE_TEST_CASE("H11: collectives run while other streams of their devices capture graphs", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  std::vector<Handle> recorded;
  std::vector<typename TestType::Client> recorders;
  fleet.for_each([&](std::size_t rank, auto& client) {
    recorders.push_back(client);
    recorders[rank].set_stream(StreamId::allocate());
    recorded.push_back(to_device(recorders[rank], numbers_of(0, 100)));
    recorders[rank].graph_prepare();
    recorders[rank].graph_start_capture();
    recorders[rank].write(recorded[rank], Bytes::copy_of(numbers_of(5, 100)));
  });
  for (int round = 0; round < 10; ++round) {
    const Sum first(fleet[0], fleet.devices(), 1000);
    const Sum second(fleet[1], fleet.devices(), 1000);
    REQUIRE((first.right(fleet[0]) && second.right(fleet[1])));
  }
  fleet.for_each([&](std::size_t rank, auto& client) {
    const auto graph = recorders[rank].graph_stop_capture();
    REQUIRE(read_soon(client, recorded[rank]) == numbers_of(0, 100));
    graph.replay();
    REQUIRE(read_soon(recorders[rank], recorded[rank]) == numbers_of(5, 100));
  });
}

namespace {

/// The numbers times `factor` plus `summand`, as the kernels of all backends do it.
Numbers multiplied(Numbers numbers, std::uint32_t factor, std::uint32_t summand) {
  for (std::int32_t& number : numbers)
    number = static_cast<std::int32_t>(static_cast<std::uint32_t>(number) * factor + summand);
  return numbers;
}

Numbers times(const Numbers& numbers, std::size_t factor) {
  return multiplied(numbers, static_cast<std::uint32_t>(factor), 0);
}

template <class Fleet>
using Graphs = std::vector<Graph<typename Fleet::Client>>;

/// That of `work(rank, client)` on each rank.
template <class Fleet, class Work>
Graphs<Fleet> graphs_of(Fleet& fleet, Work&& work) {
  Graphs<Fleet> graphs;
  fleet.for_each([&](std::size_t rank, auto& client) {
    client.graph_prepare();
    client.graph_start_capture();
    work(rank, client);
    graphs.push_back(client.graph_stop_capture());
  });
  return graphs;
}

}  // namespace

TEMPLATE_TEST_CASE("Collectives in a graph are done anew by each replay, between the launches around them", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  const auto count = GENERATE(std::size_t{100}, std::size_t{100'000});
  const std::size_t ranks = std::min<std::size_t>(TestType::max_devices(), 4);
  TestType fleet(ranks);
  const CommunicationId all(fleet.devices());
  std::vector<Handle> data;
  std::vector<Handle> sums;
  fleet.for_each([&](std::size_t, auto& client) {
    data.push_back(to_device(client, numbers_of(0, count)));
    sums.push_back(to_device(client, Numbers(count, 7)));
  });
  Graphs<TestType> graphs = graphs_of(fleet, [&](std::size_t rank, auto& client) {
    launch(client, TestType::Backend::multiply_add(data[rank], 3, 1));
    client.all_reduce(data[rank], sums[rank], ElementType::I32, all);
    launch(client, TestType::Backend::multiply_add(sums[rank], 5, 2));
    client.all_reduce(sums[rank], data[rank], ElementType::I32, all);
    client.sync_collective();
    launch(client, TestType::Backend::multiply_add(data[rank], 1, 11));
  });
  fleet.for_each([&](std::size_t rank, auto& client) {
    CHECK(read_soon(client, sums[rank]) == Numbers(count, 7));  // nothing has run
  });
  Numbers expected = numbers_of(0, count);
  for (int replay = 0; replay < 3; ++replay) {
    for (auto& graph : graphs) graph.replay();
    const Numbers summed = multiplied(times(multiplied(expected, 3, 1), ranks), 5, 2);
    expected = multiplied(times(summed, ranks), 1, 11);
    fleet.for_each([&](std::size_t rank, auto& client) {
      CHECK(read_soon(client, sums[rank]) == summed);
      CHECK(read_soon(client, data[rank]) == expected);
    });
  }
}

TEMPLATE_TEST_CASE("Graphs with collectives are replayed in one order with other collectives, as often as it likes", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  constexpr std::size_t count = 1000;
  const CommunicationId all(fleet.devices());
  std::vector<Handle> data;
  fleet.for_each([&](std::size_t, auto& client) { data.push_back(to_device(client, Numbers(count, 1))); });
  Graphs<TestType> graphs = graphs_of(fleet, [&](std::size_t rank, auto& client) {
    client.all_reduce(data[rank], data[rank], ElementType::I32, all);
    launch(client, TestType::Backend::multiply_add(data[rank], 3, 1));
  });
  constexpr int replays = 100;
  in_parallel(2, [&](std::size_t rank) {  // from other threads than the capture's, beside other collectives of theirs
    for (int i = 0; i < replays; ++i) {
      graphs[rank].replay();
      if (i % 10 != 0) continue;
      auto other = fleet[rank];
      const Sum sum(other, all, count);
      if (!sum.right(other)) throw std::runtime_error("a sum beside replays is wrong");
    }
  });
  Numbers expected(count, 1);
  for (int i = 0; i < replays; ++i) expected = multiplied(times(expected, 2), 3, 1);
  fleet.for_each([&](std::size_t rank, auto& client) { CHECK(read_soon(client, data[rank]) == expected); });
}

TEMPLATE_TEST_CASE("L11: a graph keeps the memory that its collectives use", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  constexpr std::size_t count = 5000;
  const CommunicationId all(fleet.devices());
  std::vector<Handle> data;
  Graphs<TestType> graphs;
  const auto work = [&](std::size_t rank, auto& client) {
    const Handle between = client.empty(count * sizeof(std::int32_t));  // dropped at the end
    client.all_reduce(data[rank], between, ElementType::I32, all);
    client.all_reduce(between, data[rank], ElementType::I32, all);
  };
  fleet.for_each([&](std::size_t, auto& client) {
    data.push_back(to_device(client, Numbers(count, 1)));
    client.graph_prepare();
  });
  fleet.for_each(work);
  fleet.for_each([&](std::size_t rank, auto& client) {
    client.graph_start_capture();
    work(rank, client);
    graphs.push_back(client.graph_stop_capture());
  });
  std::vector<Handle> others;
  fleet.for_each([&](std::size_t, auto& client) {
    for (int i = 0; i < 20; ++i) others.push_back(to_device(client, Numbers(count, -1)));
  });
  for (auto& graph : graphs) graph.replay();
  fleet.for_each([&](std::size_t rank, auto& client) {
    for (std::size_t i = 0; i < 20; ++i) CHECK(read_soon(client, others[rank * 20 + i]) == Numbers(count, -1));
    CHECK(read_soon(client, data[rank]) == Numbers(count, 16));  // twice doubled in the rehearsal, and by the replay
  });
}

TEMPLATE_TEST_CASE("L10: a rank that does not replay its graph is named, and the graphs work again after that", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CollectiveTimeout timeout(std::chrono::milliseconds(200));
  const CommunicationId all(fleet.devices());
  std::vector<Handle> data;
  fleet.for_each([&](std::size_t, auto& client) { data.push_back(to_device(client, Numbers(100, 1))); });
  Graphs<TestType> graphs = graphs_of(
      fleet, [&](std::size_t rank, auto& client) { client.all_reduce(data[rank], data[rank], ElementType::I32, all); });
  graphs[0].replay();
  const auto failures = failures_of(fleet[0]);
  REQUIRE(kinds_of(failures) == std::vector{Kind::Timeout});
  CHECK(mentions(failures[0].what, {fleet.devices()[1].to_string()}));
  CHECK(std::string(failures[0].site.file_name()).find("collective_capture_test") != std::string::npos);

  fleet[0].ensure_init_collective(all);
  fleet[0].accept(data[0]);
  for (auto& graph : graphs) graph.replay();
  fleet.for_each([&](std::size_t rank, auto& client) { CHECK(read_soon(client, data[rank]) == Numbers(100, 2)); });
}

TEMPLATE_TEST_CASE("Transfers in a graph are made anew by each replay, between the launches around them", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  const auto count = GENERATE(std::size_t{100}, std::size_t{100'000});
  TestType fleet(2);
  std::vector<Handle> data;
  fleet.for_each([&](std::size_t, auto& client) { data.push_back(to_device(client, Numbers(count, 1))); });
  Graphs<TestType> graphs = graphs_of(fleet, [&](std::size_t rank, auto& client) {
    const DeviceId other = fleet.devices()[1 - rank];
    if (rank == 0) {
      launch(client, TestType::Backend::multiply_add(data[0], 3, 1));
      client.send(data[0], ElementType::I32, other);
      client.receive(data[0], ElementType::I32, other);
    } else {
      client.receive(data[1], ElementType::I32, other);
      launch(client, TestType::Backend::multiply_add(data[1], 5, 2));
      client.send(data[1], ElementType::I32, other);
    }
  });
  fleet.for_each([&](std::size_t rank, auto& client) {
    CHECK(read_soon(client, data[rank]) == Numbers(count, 1));  // nothing has run
  });
  Numbers expected(count, 1);
  for (int replay = 0; replay < 4; ++replay) {
    for (auto& graph : graphs) graph.replay();
    expected = multiplied(multiplied(expected, 3, 1), 5, 2);
    fleet.for_each([&](std::size_t rank, auto& client) { CHECK(read_soon(client, data[rank]) == expected); });
  }
}

TEMPLATE_TEST_CASE("What a graph takes to another device lies in memory that both graphs keep", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  constexpr std::size_t count = 5000;
  const Handle data = to_device(fleet[0], numbers_of(0, count));
  const Handle result = to_device(fleet[1], Numbers(count, 7));
  Graphs<TestType> graphs;
  const auto work = [&] {
    launch(fleet[0], TestType::Backend::multiply_add(data, 1, 1));
    const Handle taken = fleet[0].to_client(data, fleet[1], ElementType::I32);  // dropped at the end
    fleet[1].send(taken, ElementType::I32, fleet.devices()[0]);
    fleet[0].receive(data, ElementType::I32, fleet.devices()[1]);
    fleet[0].send(data, ElementType::I32, fleet.devices()[1]);
    fleet[1].receive(result, ElementType::I32, fleet.devices()[0]);
  };
  fleet.for_each([](std::size_t, auto& client) { client.graph_prepare(); });
  work();
  fleet.for_each([](std::size_t, auto& client) { client.graph_start_capture(); });
  work();
  fleet.for_each([&](std::size_t, auto& client) { graphs.push_back(client.graph_stop_capture()); });
  std::vector<Handle> others;
  for (int i = 0; i < 20; ++i) others.push_back(to_device(fleet[1], Numbers(count, -1)));
  for (int replay = 0; replay < 3; ++replay) {
    for (auto& graph : graphs) graph.replay();
    CHECK(read_soon(fleet[1], result) == multiplied(numbers_of(0, count), 1, static_cast<std::uint32_t>(replay + 2)));
  }
  for (const Handle& other : others) CHECK(read_soon(fleet[1], other) == Numbers(count, -1));
}

TEMPLATE_TEST_CASE("A transfer that one side has captured meets the other side's call at each replay", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  auto recorder = fleet[0];
  recorder.set_stream(StreamId::allocate());
  const Handle data = to_device(recorder, numbers_of(0, 100));
  const Handle received = to_device(fleet[1], numbers_of(1, 100));
  recorder.graph_prepare();
  recorder.graph_start_capture();
  recorder.send(data, ElementType::I32, fleet.devices()[1]);
  auto graph = recorder.graph_stop_capture();
  for (int replay = 0; replay < 3; ++replay) {
    recorder.write(data, Bytes::copy_of(numbers_of(static_cast<std::size_t>(replay) + 2, 100)));
    fleet[1].receive(received, ElementType::I32, fleet.devices()[0]);
    graph.replay();
    CHECK(read_soon(fleet[1], received) == numbers_of(static_cast<std::size_t>(replay) + 2, 100));
  }
  CHECK(failures_of(recorder).empty());
}

TEMPLATE_TEST_CASE("L10: a side that does not replay its part of a transfer is named, and both work again after that",
                   "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CollectiveTimeout timeout(std::chrono::milliseconds(200));
  std::vector<Handle> data;
  fleet.for_each([&](std::size_t rank, auto& client) { data.push_back(to_device(client, numbers_of(rank, 100))); });
  Graphs<TestType> graphs = graphs_of(fleet, [&](std::size_t rank, auto& client) {
    const DeviceId other = fleet.devices()[1 - rank];
    rank == 0 ? client.send(data[0], ElementType::I32, other) : client.receive(data[1], ElementType::I32, other);
  });
  graphs[0].replay();
  const auto failures = failures_of(fleet[0]);
  REQUIRE(kinds_of(failures) == std::vector{Kind::Timeout});
  CHECK(mentions(failures[0].what, {fleet.devices()[1].to_string()}));
  CHECK(std::string(failures[0].site.file_name()).find("collective_capture_test") != std::string::npos);

  fleet[0].ensure_init_collective(CommunicationId(fleet.devices()));
  for (auto& graph : graphs) graph.replay();
  CHECK(read_soon(fleet[1], data[1]) == numbers_of(0, 100));
}

TEMPLATE_TEST_CASE("Memory that collectives of a capture write is refused on other streams, as to all ranks", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  auto other = fleet[0];
  other.set_stream(StreamId::allocate());
  const Handle data = to_device(fleet[0], numbers_of(0, 100));
  const Handle theirs = to_device(fleet[1], numbers_of(1, 100));
  settle(fleet[0]);
  fleet[0].graph_prepare();
  fleet[0].graph_start_capture();
  fleet[0].all_reduce(data, data, ElementType::I32, all);
  CHECK(kind_of<ServerError>([&] { static_cast<void>(other.read_one(data)); }) == ServerError::Kind::Graph);
  other.all_reduce(data, data, ElementType::I32, all);
  fleet[1].all_reduce(theirs, theirs, ElementType::I32, all);
  for (auto* const client : {&other, &fleet[1]}) {
    const auto failures = failures_of(*client);
    CHECK(kinds_of(failures) == std::vector{Kind::RankFailed});
    CHECK(kind_in<ServerError>(failures[0].cause) == ServerError::Kind::Graph);
  }
  auto graph = fleet[0].graph_stop_capture();
  fleet[0].accept(data);
  fleet[1].accept(theirs);
  graph.replay();
  fleet[1].all_reduce(theirs, theirs, ElementType::I32, all);
  CHECK(read_soon(other, data) == sum_of(2, 100));
}
