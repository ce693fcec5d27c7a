// What makes no sense is refused where it is asked for, and nobody is kept waiting for it.

#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/handle/inline_device_handle.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

using Call = std::function<void()>;

void require_refused(const Call& call, std::initializer_list<std::string_view> parts) {
  REQUIRE(kind_of<CollectiveError>(call) == Kind::Validation);
  const std::string message = message_of(call);
  INFO(message);
  REQUIRE(mentions(message, parts));
}

}  // namespace

TEMPLATE_TEST_CASE("Sets of devices that are no communicator are refused", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const auto& devices = fleet.devices();
  const std::uint16_t type = devices[0].type;
  const std::uint16_t index = devices[0].index;
  const Handle data = to_device(fleet[0], numbers_of(0, 100));
  const auto with = [&](std::vector<DeviceId> set) {
    return [&fleet, &data, set = std::move(set)] { fleet[0].all_reduce(data, data, ElementType::I32, set); };
  };
  require_refused(with({}), {"no device was named"});
  require_refused(with({devices[0], devices[1], devices[0]}), {devices[0].to_string() + " is named twice"});
  require_refused(with({devices[0], {.type = static_cast<std::uint16_t>(type + 1), .index = index}}),
                  {"of different types"});
  require_refused(with({devices[1], devices[2]}), {devices[0].to_string() + " is not in"});
  require_refused(with({devices[0], {.type = type, .index = 900}}), {":900"});
  require_refused([&] { fleet[0].ensure_init_collective({devices[0], {.type = type, .index = 900}}); }, {":900"});
  require_refused([&] { fleet[0].ensure_init_collective({devices[1], devices[2]}); }, {"is not in"});
  require_refused([&] { fleet[0].send(data, ElementType::I32, devices[0]); }, {"twice"});
  require_refused([&] { fleet[0].send(data, ElementType::I32, {.type = type, .index = 900}); }, {":900"});
  settle(fleet[0]);
  REQUIRE(recorded_operations().empty());
}

TEMPLATE_TEST_CASE("Operations that make no sense are refused, and leave nothing behind", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const auto& devices = fleet.devices();
  const CommunicationId all(devices);
  constexpr auto i32 = ElementType::I32;
  auto& client = fleet[0];
  const Handle data = to_device(client, numbers_of(0, 100));
  const Handle small = to_device(client, numbers_of(0, 99));
  const Handle odd = client.empty(398);
  require_refused([&] { client.all_reduce(data, data, ElementType::Bool, all); }, {"bool", "cannot be reduced"});
  require_refused([&] { client.reduce_scatter(data, small, ElementType::Bool, all); }, {"cannot be reduced"});
  require_refused([&] { client.all_reduce(data, small, i32, all); }, {"400 bytes", "396 bytes"});
  require_refused([&] { client.all_reduce(odd, odd, i32, all); }, {"398 bytes", "not a whole number of i32"});
  require_refused([&] { client.all_reduce(data.offset_start(2).offset_end(2), data, i32, all); },
                  {"source begins 2 bytes", "not aligned for i32 of 4 bytes"});
  require_refused([&] { client.all_gather(small.offset_end(392), data.offset_start(1).offset_end(387), i32, all); },
                  {"destination begins 1 bytes", "not aligned"});
  require_refused([&] { client.all_reduce(data, Handle(), i32, all); }, {"destination has no memory"});
  require_refused([&] { client.all_gather(data, data, i32, all); }, {"cannot be divided equally among 3 ranks"});
  require_refused([&] { client.all_to_all(data, data, i32, all); }, {"cannot be divided equally"});
  require_refused([&] { client.all_reduce(data.offset_end(40), data.offset_start(40), i32, all); }, {"overlap"});
  require_refused([&] { client.broadcast(data, data, i32, all, {.type = devices[0].type, .index = 900}); },
                  {":900", "is not in"});
  require_refused([&] { static_cast<void>(client.to_client(odd, fleet[1], i32)); }, {"398 bytes"});
  require_refused(
      [&] {
        client.collective_group(all, [&](auto& group) {
          group.send(data, i32, devices[1]);
          group.barrier();
        });
      },
      {"cannot be part of a group"});
  struct Stop {};
  REQUIRE_THROWS_AS(client.collective_group(all,
                                            [&](CollectiveGroup& group) {
                                              group.all_reduce(data, data, i32);
                                              throw Stop();
                                            }),
                    Stop);
  client.collective_group(all, [](CollectiveGroup&) {});  // nothing
  settle(client);
  std::vector<Sum> sums;  // the first operation for all three
  fleet.for_each([&](std::size_t, auto& each) { sums.emplace_back(each, all, 100); });
  fleet.for_each([&](std::size_t rank, auto& each) { REQUIRE(sums[rank].right(each)); });
}

TEMPLATE_TEST_CASE("Operations of no elements are operations", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  fleet.for_each([&](std::size_t, auto& client) {
    const Handle empty = client.empty(0);
    client.all_reduce(empty, empty, ElementType::I32, all);
    client.all_gather(empty, client.empty(0), ElementType::I32, all);
  });
  const Handle there = fleet[0].to_client(fleet[0].empty(0), fleet[1], ElementType::I32);
  fleet.for_each([&](std::size_t, auto& client) { settle(client); });
  REQUIRE(read_soon(fleet[1], there).empty());
}

TEMPLATE_TEST_CASE("After a shutdown communication is refused as every call is", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  const Handle data = to_device(fleet[0], numbers_of(0, 100));
  const Handle there = to_device(fleet[1], numbers_of(0, 100));
  shutdown(fleet.devices()[0]);
  const auto closed = [](const Call& call) { return kind_of<CallError>(call) == CallError::Kind::Closed; };
  REQUIRE(closed([&] { fleet[0].all_reduce(data, data, ElementType::I32, all); }));
  REQUIRE(closed([&] { fleet[0].barrier(all); }));
  REQUIRE(closed([&] { fleet[0].send(data, ElementType::I32, fleet.devices()[1]); }));
  REQUIRE(closed([&] { fleet[0].sync_collective(); }));
  fleet.reopen(0);
  const Sum first(fleet[0], all, 100);
  const Sum second(fleet[1], all, 100);
  REQUIRE((first.right(fleet[0]) && second.right(fleet[1])));
}

TEST_CASE("Clients that run their calls on the caller's thread cannot communicate, and say so") {
  HostFleet fleet(2);
  const CommunicationId all(fleet.devices());
  using InlineClient = ComputeClient<HostServer, InlineDeviceHandle>;
  const DeviceId device = fleet.devices()[1];
  shutdown(device);
  {
    const auto client = InlineClient::load(device);
    const Handle data = to_device(client, numbers_of(0, 100));
    const auto unsupported = [](const Call& call) { return kind_of<CollectiveError>(call) == Kind::Unsupported; };
    REQUIRE(unsupported([&] { client.ensure_init_collective(all); }));
    REQUIRE(unsupported([&] { client.all_reduce(data, data, ElementType::I32, all); }));
    REQUIRE(unsupported([&] { client.barrier(all); }));
    REQUIRE(unsupported([&] { client.send(data, ElementType::I32, fleet.devices()[0]); }));
    REQUIRE(unsupported([&] { client.sync_collective(); }));
    const Handle there = client.to_client(data, fleet[0], ElementType::I32);  // by way of the host
    REQUIRE(read_soon(fleet[0], there) == numbers_of(0, 100));
  }
  fleet.reopen(1);
}
