// T1, T3, T6: what a device does while collectives are half begun: its part is under way and waits for that of another
// device, which waits behind work that does not end. Whoever waited for all of a device's work would wait for ever.

#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/error/server_error.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

/// Two devices of which the second is held up, and begins no more.
template <class Fleet>
struct HeldPair {
  HeldPair() {
    fleet.for_each([&](std::size_t rank, auto& client) { data[rank] = to_device(client, numbers_of(0, 1000)); });
    ask();  // all is made
    fleet.for_each([](std::size_t, auto& client) { settle(client); });
    hold.launch(fleet[1]);
    hold.wait_until_entered();
  }
  /// For a maximum, of both.
  void ask() {
    fleet.for_each([&](std::size_t rank, auto& client) {
      client.all_reduce(data[rank], data[rank], ElementType::I32, fleet.devices(), ReduceOperation::Max);
    });
  }
  /// Another stream of the first device goes on.
  void check_other_stream() { CHECK(read_soon(apart, other) == numbers_of(5, 3)); }
  /// Lets the second device go on; all that was asked for is done.
  void finish() {
    hold.open();
    fleet.for_each(
        [&](std::size_t rank, auto& client) { CHECK(read_soon(client, data[rank]) == numbers_of(0, 1000)); });
  }

  Fleet fleet{2};
  Handle data[2];
  typename Fleet::Client apart = [this] {
    auto client = fleet[0];
    client.set_stream(StreamId::allocate());
    return client;
  }();
  Handle other = to_device(apart, numbers_of(5, 3));
  typename Fleet::Hold hold;
};

}  // namespace

TEMPLATE_TEST_CASE("T3: a device that is far ahead of another does not hold up its other streams", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  HeldPair<TestType> pair;
  // More than the driver of a GPU takes before it blocks.
  for (int i = 0; i < 20; ++i) {
    for (int k = 0; k < 200; ++k) pair.ask();
    pair.check_other_stream();
    // The device threads are kept in step: one may not ask for more than collectives.max_ahead alone.
    pair.fleet.for_each([](std::size_t, auto& client) { client.device_handle().submit_blocking([](auto&) {}); });
  }
  pair.finish();
}

TEMPLATE_TEST_CASE("T6: memory that runs out while a collective is half begun holds nobody up", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  HeldPair<TestType> pair;
  pair.ask();
  const auto& first = pair.fleet[0];
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS_AS(pair.apart.read_one(pair.apart.empty(first.properties().memory.capacity)), ServerError);
    pair.check_other_stream();
  }
  pair.finish();
}

TEMPLATE_TEST_CASE("T1: what an operation of a new kind needs holds nobody up while a collective is half begun", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  HeldPair<TestType> pair;
  pair.ask();
  std::vector<Handle> wide;
  pair.fleet.for_each([&](std::size_t rank, auto& client) {
    wide.push_back(to_device(client, std::vector<std::uint64_t>(100, rank + 1)));
    client.all_reduce(wide.back(), wide.back(), ElementType::U64, pair.fleet.devices());  // code of its own on GPUs
  });
  for (int i = 0; i < 3; ++i) pair.check_other_stream();
  pair.finish();
  pair.fleet.for_each([&](std::size_t rank, auto& client) {
    CHECK(read_soon<std::uint64_t>(client, wide[rank]) == std::vector<std::uint64_t>(100, 3));
  });
}

TEMPLATE_TEST_CASE("T1: NCCL holds nobody up that creates its communicators while a collective is half begun", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  HeldPair<TestType> pair;
  pair.ask();
  pair.fleet.for_each([&](std::size_t, auto& client) { client.barrier(pair.fleet.devices()); });  // NCCL's on GPUs
  for (int i = 0; i < 3; ++i) pair.check_other_stream();
  pair.finish();
  pair.fleet.for_each([](std::size_t, auto& client) { settle(client); });
}

TEMPLATE_TEST_CASE("T1: what new streams and their launches need holds nobody up while a collective is half begun", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  using Backend = typename TestType::Backend;
  HeldPair<TestType> pair;
  const Handle prepared = pair.apart.empty(sizeof(std::uint32_t));
  launch(pair.apart, Backend::fill(prepared, 1));  // its code is loaded
  settle(pair.apart);
  pair.ask();
  pair.fleet.for_each([](std::size_t, auto& client) { client.device_handle().submit_blocking([](auto&) {}); });
  // Few enough that none of them shares a driver stream with one that waits for the collective.
  for (std::uint32_t stream = 0; stream < 12; ++stream) {
    auto client = pair.fleet[0];
    client.set_stream(StreamId::allocate());
    const Handle data = client.empty(sizeof(std::uint32_t));
    for (const int together : {1, 1, 2, 4, 8, 16}) {
      for (int i = 0; i < together; ++i) launch(client, Backend::fill(data, stream));
      client.flush();
    }
    CHECK(read_soon<std::uint32_t>(client, data) == std::vector{stream});
  }
  pair.check_other_stream();
  pair.finish();
}
