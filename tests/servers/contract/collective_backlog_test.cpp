// H10: a device that races ahead of the others (seed-semantics 3.10), and devices that are asked for much at once.

#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/call_error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

std::size_t max_ahead() { return static_cast<std::size_t>(settings().get<std::uint64_t>("collectives.max_ahead")); }

/// Returns when the timeout has passed since it was called: a rank that nobody joins is told after that.
template <class Client>
void let_timeout_pass(const Client& client, const CommunicationId& devices) {
  const Sum alone(client, devices, 4);
  REQUIRE(kinds_of(failures_of(client)) == std::vector{Kind::Timeout});
}

bool is_full_queue(const std::exception_ptr& cause) {
  return cause && kind_of<CallError>([&] { std::rethrow_exception(cause); }) == CallError::Kind::QueueFull;
}

}  // namespace

TEMPLATE_TEST_CASE("H10: a device may be as far ahead as the setting says", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const std::size_t ahead = max_ahead();
  std::vector<Sum> sums[2];
  fleet.for_each([&](std::size_t rank, auto& client) {
    for (std::size_t i = 0; i < ahead; ++i) sums[rank].emplace_back(client, fleet.devices(), 4);
  });
  fleet.for_each([&](std::size_t rank, auto& client) {
    REQUIRE(failures_of(client).empty());
    REQUIRE(std::ranges::all_of(sums[rank], [&](const Sum& sum) { return sum.right(client); }));
  });
}

// The operation that was not taken has no number: were the others to go on, they would meet the wrong ones.
TEMPLATE_TEST_CASE("H10: a device that is too far ahead ends its communicator for all ranks, with that cause", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const std::size_t ahead = max_ahead();
  const CommunicationId all(fleet.devices());
  const Handle data = to_device(fleet[0], numbers_of(0, 4));
  for (std::size_t i = 0; i < ahead + 1; ++i) fleet[0].all_reduce(data, data, ElementType::I32, all);
  const auto require_told = [&](auto& client) {
    const auto failures = failures_of(client);
    REQUIRE_FALSE(failures.empty());
    for (const Failure& failure : failures) {
      REQUIRE(failure.kind == Kind::Aborted);
      REQUIRE(is_full_queue(failure.cause));
    }
  };
  require_told(fleet[0]);
  REQUIRE(read_accepted(fleet[0], data) == numbers_of(0, 4));
  const Handle other = to_device(fleet[1], numbers_of(1, 4));
  fleet[1].all_reduce(other, other, ElementType::I32, all);
  require_told(fleet[1]);

  fleet[0].ensure_init_collective(all);
  const Sum first(fleet[0], all, 100);
  const Sum second(fleet[1], all, 100);
  REQUIRE((first.right(fleet[0]) && second.right(fleet[1])));
}

TEMPLATE_TEST_CASE("H10 L10: a backlog that moves may take longer than the timeout", "", COX_FLEETS) {
  const CollectiveTimeout timeout(std::chrono::milliseconds(500));
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const auto& devices = fleet.devices();
  const CommunicationId pair{devices[0], devices[1]};
  constexpr std::size_t steps = 2;
  for (const CommunicationId& among :
       {pair, CommunicationId{devices[0], devices[2]}, CommunicationId{devices[1], devices[2]}}) {
    std::vector<Sum> first;  // what that opens may wait for what runs
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 0; rank < 3; ++rank)
      if (std::ranges::find(among.devices(), devices[rank]) != among.devices().end()) ranks.push_back(rank);
    for (const std::size_t rank : ranks) first.emplace_back(fleet[rank], among, 4);
    for (std::size_t i = 0; i < ranks.size(); ++i) REQUIRE(first[i].right(fleet[ranks[i]]));
  }
  typename TestType::Hold holds[steps][2];
  std::vector<Sum> sums[2];
  for (auto& hold : holds)
    for (const std::size_t rank : {0UL, 1UL}) {
      hold[rank].launch(fleet[rank]);
      sums[rank].emplace_back(fleet[rank], pair, 4);
    }
  for (std::size_t step = 0; step < steps; ++step) {  // all have been asked for, by both, before the first
    for (auto& hold : holds[step]) hold.wait_until_entered();
    let_timeout_pass(fleet[2], {devices[step], devices[2]});
    for (auto& hold : holds[step]) hold.open();
  }
  for (const std::size_t rank : {0UL, 1UL}) {
    REQUIRE(failures_of(fleet[rank]).empty());
    for (const Sum& sum : sums[rank]) REQUIRE(sum.right(fleet[rank]));
  }
}

TEMPLATE_TEST_CASE("H10 L10: a rank whose stream does not come ends the whole backlog with one timeout", "",
                   COX_FLEETS) {
  constexpr std::chrono::milliseconds deadline{200};
  constexpr std::size_t backlog = 20;
  const CollectiveTimeout timeout(deadline);
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  std::vector<Sum> first;  // what that opens may wait for what runs
  fleet.for_each([&](std::size_t, auto& client) { first.emplace_back(client, all, 4); });
  fleet.for_each([&](std::size_t rank, auto& client) { REQUIRE(first[rank].right(client)); });
  typename TestType::Hold hold;
  hold.launch(fleet[1]);
  hold.wait_until_entered();
  const auto begin = Clock::now();
  std::vector<Sum> sums[2];
  fleet.for_each([&](std::size_t rank, auto& client) {
    for (std::size_t i = 0; i < backlog; ++i) sums[rank].emplace_back(client, all, 4);
  });
  const auto told = failures_of(fleet[0]);
  CHECK(Clock::now() - begin < backlog / 2 * deadline);
  hold.open();
  for (const auto& failures : {told, failures_of(fleet[1])}) {
    REQUIRE(failures.size() == backlog);
    for (const Failure& failure : failures) {
      REQUIRE(failure.kind == Kind::Timeout);
      REQUIRE(mentions(failure.what, {"has not started", fleet.devices()[1].to_string() + " has not completed"}));
    }
  }
}
