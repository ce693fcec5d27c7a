// One device is a valid communicator: an engine needs no branch for it.

#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/settings_scope.hpp>

#include <coxswain/collectives/communicator/gradient_buckets.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <stdexcept>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

constexpr ElementType i32 = ElementType::I32;

template <class Client>
using Operation = std::function<void(const Client&, const Handle&, const Handle&, const CommunicationId&)>;

template <class Client>
std::vector<Operation<Client>> all_operations() {
  return {[](auto& client, auto& from, auto& to, auto& alone) { client.all_reduce(from, to, i32, alone); },
          [](auto& client, auto& from, auto& to, auto& alone) {
            client.all_reduce(from, to, i32, alone, ReduceOperation::Mean);
          },
          [](auto& client, auto& from, auto& to, auto& alone) {
            client.reduce(from, to, i32, alone, ReduceOperation::Max, client.device_id());
          },
          [](auto& client, auto& from, auto& to, auto& alone) {
            client.broadcast(from, to, i32, alone, client.device_id());
          },
          [](auto& client, auto& from, auto& to, auto& alone) { client.all_gather(from, to, i32, alone); },
          [](auto& client, auto& from, auto& to, auto& alone) { client.reduce_scatter(from, to, i32, alone); },
          [](auto& client, auto& from, auto& to, auto& alone) { client.all_to_all(from, to, i32, alone); }};
}

}  // namespace

TEMPLATE_TEST_CASE("One device: every operation gives it what it has", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 1);
  const auto count = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{3'000'000});
  TestType fleet(1);
  const CommunicationId alone(fleet.devices());
  auto& client = fleet[0];
  client.ensure_init_collective(alone);
  client.barrier(alone);
  const Numbers numbers = numbers_of(3, count);
  for (const auto& operation : all_operations<typename TestType::Client>()) {
    const Handle from = to_device(client, numbers);
    const Handle to = to_device(client, Numbers(count, -1));
    operation(client, from, to, alone);
    CHECK(read_soon(client, to) == numbers);
  }
  const Handle in_place = to_device(client, numbers);
  client.collective_group(alone, [&](CollectiveGroup& group) {
    group.all_reduce(in_place, in_place, i32);
    group.all_gather(in_place, in_place, i32);
    group.reduce_scatter(in_place, in_place, i32);
    group.barrier();
  });
  CHECK(read_soon(client, in_place) == numbers);
  settle(client);
}

TEMPLATE_TEST_CASE("One device: whatever can be reduced is, in the order of ranks and without peer memory", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 1);
  const SettingsScope settings({{"collectives.reproducible", true}, {"collectives.peer_memory", false}});
  TestType fleet(1);
  const CommunicationId alone(fleet.devices());
  auto& client = fleet[0];
  const Numbers numbers(1000, 0x01020304);  // no NaN of any type
  for (const ElementType type : {ElementType::F32, ElementType::F8E4M3, ElementType::I16, ElementType::I32}) {
    const Handle from = to_device(client, numbers);
    const Handle to = to_device(client, Numbers(1000, -1));
    client.all_reduce(from, to, type, alone);
    CHECK(read_soon(client, to) == numbers);
    client.collective_group(alone, [&](CollectiveGroup& group) {
      group.reduce_scatter(from, to, type, ReduceOperation::Mean);
      group.barrier();
    });
    CHECK(read_soon(client, to) == numbers);
  }
}

TEMPLATE_TEST_CASE("One device: a graph, gradient buckets and to_client work as with several", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 1);
  TestType fleet(1);
  const CommunicationId alone(fleet.devices());
  auto& client = fleet[0];
  const Handle data = to_device(client, Numbers(100, 2));
  client.graph_prepare();
  client.graph_start_capture();
  client.all_reduce(data, data, i32, alone);
  launch(client, TestType::Backend::multiply_add(data, 3, 1));
  auto graph = client.graph_stop_capture();
  graph.replay();
  graph.replay();
  CHECK(read_soon(client, data) == Numbers(100, 22));

  GradientBuckets<typename TestType::Client> buckets(client, alone, {{.bytes = 400, .type = i32}},
                                                     ReduceOperation::Sum);
  for (int step = 0; step < 3; ++step) {
    buckets.add(0, data);
    CHECK_NOTHROW(get_soon(buckets.finish()));
  }
  CHECK(read_soon(client, data) == Numbers(100, 22));
  CHECK(read_soon(client, client.to_client(data, client, i32)) == Numbers(100, 22));
}

TEMPLATE_TEST_CASE("One device: what fails and what is aborted is told", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 1);
  TestType fleet(1);
  const CommunicationId alone(fleet.devices());
  auto& client = fleet[0];
  const Handle data = to_device(client, Numbers(100, 2));
  client.abort_collective(alone, std::make_exception_ptr(std::runtime_error("enough")));
  client.all_reduce(data, data, i32, alone);
  const auto failures = failures_of(client);
  REQUIRE(kinds_of(failures) == std::vector{Kind::Aborted});
  CHECK(mentions(failures[0].what, {"enough"}));
  client.ensure_init_collective(alone);
  client.accept(data);
  client.all_reduce(data, data, i32, alone);
  CHECK(read_soon(client, data) == Numbers(100, 2));
  CHECK(kind_of<CollectiveError>([&] { client.send(data, i32, client.device_id()); }) == Kind::Validation);
}
