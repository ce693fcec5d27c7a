// H11: collectives and captures (seed-semantics 3.10).

#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstddef>
#include <vector>

using namespace cox;
using namespace cox::test;

TEMPLATE_TEST_CASE("H11: collectives run while other streams of their devices capture graphs", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  std::vector<Handle> recorded;
  std::vector<typename TestType::Client> recorders;
  fleet.each([&](std::size_t rank, auto& client) {
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
  fleet.each([&](std::size_t rank, auto& client) {
    const auto graph = recorders[rank].graph_stop_capture();
    REQUIRE(read_soon(client, recorded[rank]) == numbers_of(0, 100));
    graph.replay();
    REQUIRE(read_soon(recorders[rank], recorded[rank]) == numbers_of(5, 100));
  });
}

TEMPLATE_TEST_CASE("H11: a collective in a capture fails the capture, and the other ranks are told", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  auto recorder = fleet[0];
  recorder.set_stream(StreamId::allocate());
  const Handle data = to_device(recorder, numbers_of(0, 100));
  recorder.graph_prepare();
  recorder.graph_start_capture();
  recorder.all_reduce(data, data, ElementType::I32, all);
  const Sum other(fleet[1], all, 100);
  const auto failures = failures_of(fleet[1]);
  REQUIRE(kinds_of(failures) == std::vector{Kind::RankFailed});
  REQUIRE(mentions(failures[0].what, {fleet.devices()[0].to_string(), "capturing a graph"}));
  REQUIRE(kind_of<ServerError>([&] { std::rethrow_exception(failures[0].cause); }) == ServerError::Kind::Graph);

  REQUIRE(kind_of<ServerError>([&] { static_cast<void>(recorder.graph_stop_capture()); }) == ServerError::Kind::Graph);
  REQUIRE(failures_of(recorder).empty());  // the capture had it
  REQUIRE(read_soon(recorder, data) == numbers_of(0, 100));
  const Sum first(recorder, all, 100);
  const Sum second(fleet[1], all, 100);
  REQUIRE((first.right(recorder) && second.right(fleet[1])));
}

TEMPLATE_TEST_CASE("H11: waiting for collectives is not possible in a capture", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  fleet[0].graph_prepare();
  fleet[0].graph_start_capture();
  fleet[0].sync_collective();
  const auto stop = [&] { static_cast<void>(fleet[0].graph_stop_capture()); };
  REQUIRE(mentions(message_of(stop), {"sync_collective", "capturing a graph"}));
  settle(fleet[0]);
}
