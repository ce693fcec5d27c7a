// L10, F16: ranks that do not come, or do not begin. Deadlines are short, and what is measured starts at them.

#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/call_options.hpp>

#include <chrono>
#include <cstddef>
#include <future>
#include <string>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

constexpr std::chrono::milliseconds deadline{200};
constexpr std::chrono::seconds told_within{1};
constexpr std::chrono::seconds usable_within{5};

std::string line(std::source_location site) {
  return std::string(site.file_name()) + ":" + std::to_string(site.line());
}

/// Two ranks get their sum, now.
template <class Fleet>
void require_service(Fleet& fleet, const CommunicationId& devices, std::size_t first = 0, std::size_t second = 1) {
  const Sum left(fleet[first], devices, 100);
  const Sum right(fleet[second], devices, 100);
  REQUIRE((left.right(fleet[first]) && right.right(fleet[second])));
}

}  // namespace

TEMPLATE_TEST_CASE("L10 F16: a missing rank is named, with its last operation and what its thread does", "",
                   COX_FLEETS) {
  const CollectiveTimeout timeout(deadline);
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const auto& devices = fleet.devices();
  const CommunicationId pair{devices[0], devices[1]};
  require_service(fleet, pair);
  const std::source_location last = std::source_location::current();
  fleet[1].all_reduce(to_device(fleet[1], numbers_of(1, 7)), fleet[1].empty(28), ElementType::I32, pair,
                      ReduceOperation::Max, last);
  fleet[0].all_reduce(to_device(fleet[0], numbers_of(0, 7)), fleet[0].empty(28), ElementType::I32, pair,
                      ReduceOperation::Max, last);
  settle(fleet[1]);

  std::promise<void> gate;
  std::promise<void> entered;
  const std::source_location held_up = std::source_location::current();
  fleet[1].device_handle().submit(
      [&entered, opened = gate.get_future().share()](auto&) {
        entered.set_value();
        opened.wait();
      },
      CallOptions{.label = "load the batch", .site = held_up});
  entered.get_future().wait();
  const Sum late(fleet[1], pair, 100);  // three tasks that wait behind it
  const std::source_location site = std::source_location::current();
  const auto begin = Clock::now();
  const Sum early(fleet[0], pair, 100, site);
  const Sum others[] = {{fleet[0], {devices[0], devices[2]}, 100}, {fleet[2], {devices[0], devices[2]}, 100}};
  REQUIRE(others[0].right(fleet[0]));  // on another communicator: it does not wait for the missing one
  REQUIRE(others[1].right(fleet[2]));

  const auto failures = failures_of(fleet[0]);
  const auto told = Clock::now() - begin - deadline;
  CHECK(told >= std::chrono::milliseconds(0));
  CHECK(told < told_within);
  REQUIRE(kinds_of(failures) == std::vector{Kind::Timeout});
  REQUIRE(failures[0].site.line() == site.line());
  INFO(failures[0].what);
  REQUIRE(mentions(failures[0].what,
                   {"operation 3 of", "was not submitted by all ranks within 200 ms",
                    devices[1].to_string() + " is missing", "operation 2, all_reduce (max) of 7 i32 at " + line(last),
                    "in task load the batch", line(held_up), "3 queued after it"}));
  REQUIRE_FALSE(mentions(failures[0].what, {devices[0].to_string() + " is missing"}));

  const auto renewed = Clock::now();
  gate.set_value();
  fleet[0].ensure_init_collective(pair);
  const auto too_late = failures_of(fleet[1]);  // on the old one
  REQUIRE(too_late.size() == 1);
  REQUIRE((too_late[0].kind == Kind::Timeout || too_late[0].kind == Kind::Aborted));
  REQUIRE(mentions(too_late[0].what, {devices[1].to_string() + " is missing"}));
  require_service(fleet, pair);
  const auto usable = Clock::now() - renewed;
  CHECK(usable < usable_within);
}

TEMPLATE_TEST_CASE("L10: an operation after a timeout is refused at once, until the communicator is renewed", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  {
    const CollectiveTimeout timeout(std::chrono::milliseconds(20));
    fleet[0].ensure_init_collective(all);
  }
  const Sum alone(fleet[0], all, 100);
  REQUIRE(kinds_of(failures_of(fleet[0])) == std::vector{Kind::Timeout});
  const Sum late(fleet[1], all, 100);
  const Sum again(fleet[0], all, 100);
  REQUIRE(kinds_of(failures_of(fleet[1])) == std::vector{Kind::Timeout});
  REQUIRE(kinds_of(failures_of(fleet[0])) == std::vector{Kind::Timeout});
  fleet[1].ensure_init_collective(all);  // by any of them, with the timeout that is in force now
  require_service(fleet, all);
  const Sum waits(fleet[0], all, 100);
  fleet[0].ensure_init_collective(all);  // finds it: what waits there goes on
  const Sum comes(fleet[1], all, 100);
  REQUIRE((waits.right(fleet[0]) && comes.right(fleet[1])));
}

TEMPLATE_TEST_CASE("L10: a missing receiver is named, transfers the other way and collectives go on", "", COX_FLEETS) {
  const CollectiveTimeout timeout(deadline);
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const auto& devices = fleet.devices();
  auto sender = fleet[0];  // on a stream of its own: its failure may come before the sums do
  sender.set_stream(StreamId::allocate());
  const Handle source = to_device(sender, numbers_of(0, 100));
  sender.send(source, ElementType::I32, devices[1]);
  require_service(fleet, CommunicationId(devices));
  const Handle back = fleet[1].to_client(to_device(fleet[1], numbers_of(1, 100)), fleet[0], ElementType::I32);
  REQUIRE(read_soon(fleet[0], back) == numbers_of(1, 100));
  const auto failures = failures_of(sender);
  REQUIRE(kinds_of(failures) == std::vector{Kind::Timeout});
  REQUIRE(mentions(failures[0].what, {"send of 100 i32", devices[1].to_string() + " is missing"}));
  REQUIRE(read_soon(sender, source) == numbers_of(0, 100));
}

TEMPLATE_TEST_CASE("L10: a rank whose stream does not come to it is named, and nobody's memory is touched", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const CommunicationId all(fleet.devices());
  {
    const CollectiveTimeout timeout(deadline);
    fleet[0].ensure_init_collective(all);
  }
  std::vector<Sum> first;  // what that opens may wait for what runs
  fleet.for_each([&](std::size_t, auto& client) { first.emplace_back(client, all, 100); });
  fleet.for_each([&](std::size_t rank, auto& client) { REQUIRE(first[rank].right(client)); });
  typename TestType::Hold hold;
  hold.launch(fleet[1]);
  hold.wait_until_entered();
  const auto begin = Clock::now();
  std::vector<Handle> data;
  std::vector<Future<void>> ends;
  fleet.for_each([&](std::size_t rank, auto& client) {
    data.push_back(to_device(client, numbers_of(rank, 1000)));
    client.all_reduce(data[rank], data[rank], ElementType::I32, all);
    client.all_reduce(data[rank], data[rank], ElementType::I32, all);  // behind it
  });
  for (const std::size_t rank : {0UL, 2UL}) {
    const auto failures = failures_of(fleet[rank]);
    CHECK(Clock::now() - begin < deadline + told_within);
    INFO(failures.at(0).what);
    REQUIRE(failures.size() == 2);
    REQUIRE(failures[0].kind == Kind::Timeout);
    REQUIRE(mentions(failures[0].what, {"has not started after 200 ms",
                                        "earlier work on " + fleet.devices()[1].to_string() + " has not completed"}));
    REQUIRE_FALSE(mentions(failures[0].what, {fleet.devices()[0].to_string()}));
    REQUIRE(read_accepted(fleet[rank], data[rank]) == numbers_of(rank, 1000));
    fleet[rank].write(data[rank], Bytes::copy_of(numbers_of(7, 1000)));  // may be used at once
    settle(fleet[rank]);
  }
  hold.open();
  const auto failures = failures_of(fleet[1]);
  REQUIRE(failures.size() == 2);
  REQUIRE(failures[0].kind == Kind::Timeout);
  if (!TestType::late_rank_writes) REQUIRE(read_accepted(fleet[1], data[1]) == numbers_of(1, 1000));
  for (const std::size_t rank : {0UL, 2UL}) REQUIRE(read_soon(fleet[rank], data[rank]) == numbers_of(7, 1000));

  fleet[1].ensure_init_collective(all);
  std::vector<Sum> sums;
  fleet.for_each([&](std::size_t, auto& client) { sums.emplace_back(client, all, 100); });
  fleet.for_each([&](std::size_t rank, auto& client) { REQUIRE(sums[rank].right(client)); });
}

// Of host devices alone: a copy that a GPU has been given cannot be taken back, so that the receiver's stream waits,
// too.
TEMPLATE_TEST_CASE("L10: a sender whose stream does not come to it is named, and the receiver goes on", "", HostFleet) {
  const CollectiveTimeout timeout(deadline);
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  typename TestType::Hold hold;
  hold.launch(fleet[0]);
  hold.wait_until_entered();
  const Handle received = fleet[0].to_client(to_device(fleet[0], numbers_of(1, 10)), fleet[1], ElementType::I32);
  const auto failures = failures_of(fleet[1]);
  REQUIRE(kinds_of(failures) == std::vector{Kind::Timeout});
  REQUIRE(mentions(failures[0].what, {"earlier work on " + fleet.devices()[0].to_string()}));
  hold.open();
  REQUIRE(kinds_of(failures_of(fleet[0])) == std::vector{Kind::Timeout});
}
