// Ranks that ask for different things: all are told, with both call sites, and the next operation works.

#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstddef>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

/// What one rank puts into its group, with 60 and with 30 numbers of 4 bytes.
using Ask = std::function<void(CollectiveGroup&, const Handle& large, const Handle& small)>;

struct Case {
  std::string differs;
  Ask first;
  Ask second;
};

std::string text_of(std::source_location site) {
  return std::string(site.file_name()) + ":" + std::to_string(site.line());
}

}  // namespace

TEMPLATE_TEST_CASE("A mismatch is told to every rank with both call sites, and the next operation works", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const auto& devices = fleet.devices();
  const CommunicationId all(devices);
  constexpr auto i32 = ElementType::I32;
  constexpr auto sum = ReduceOperation::Sum;
  const Ask all_reduce = [&](auto& group, auto& large, auto&) { group.all_reduce(large, large, i32); };
  const std::vector<Case> cases{
      {"the operation is", all_reduce,
       [&](auto& group, auto& large, auto&) { group.broadcast(large, large, i32, devices[0]); }},
      {"the operation is", all_reduce, [](auto& group, auto&, auto&) { group.barrier(); }},
      {"the count is", all_reduce, [&](auto& group, auto&, auto& small) { group.all_reduce(small, small, i32); }},
      {"the element type is", all_reduce,
       [](auto& group, auto& large, auto&) { group.all_reduce(large, large, ElementType::F32); }},
      {"the reduce operation is", all_reduce,
       [&](auto& group, auto& large, auto&) { group.all_reduce(large, large, i32, ReduceOperation::Max); }},
      {"the root is", [&](auto& group, auto& large, auto&) { group.reduce(large, large, i32, sum, devices[0]); },
       [&](auto& group, auto& large, auto&) { group.reduce(large, large, i32, sum, devices[1]); }},
      {"the root is", [&](auto& group, auto& large, auto&) { group.broadcast(large, large, i32, devices[0]); },
       [&](auto& group, auto& large, auto&) { group.broadcast(large, large, i32, devices[2]); }},
      {"the group has", all_reduce,
       [&](auto& group, auto& large, auto&) {
         group.all_reduce(large, large, i32);
         group.barrier();
       }},
      {"in operation 2 of the group",
       [&](auto& group, auto& large, auto& small) {
         group.all_reduce(large, large, i32);
         group.all_reduce(small, small, i32);
       },
       [&](auto& group, auto& large, auto&) {
         group.all_reduce(large, large, i32);
         group.barrier();
       }},
  };
  for (const Case& differing : cases) {
    INFO(differing.differs);
    const std::size_t odd = static_cast<std::size_t>(&differing - cases.data()) % 2 == 0 ? 2 : 1;
    std::vector<Handle> large;
    std::source_location sites[2];
    fleet.for_each([&](std::size_t rank, auto& client) {
      large.push_back(to_device(client, numbers_of(rank, 60)));
      const Handle small = to_device(client, numbers_of(rank, 30));
      const auto put = [&](const Ask& ask) {
        return [&large, &small, &ask, rank](CollectiveGroup& group) { ask(group, large[rank], small); };
      };
      if (rank == odd)
        client.collective_group(all, put(differing.second), sites[1] = std::source_location::current());
      else
        client.collective_group(all, put(differing.first), sites[0] = std::source_location::current());
    });
    fleet.for_each([&](std::size_t rank, auto& client) {
      const auto failures = failures_of(client);
      REQUIRE(kinds_of(failures) == std::vector{Kind::Mismatch});
      INFO(failures[0].what);
      REQUIRE(mentions(failures[0].what,
                       {differing.differs, text_of(sites[0]), text_of(sites[1]), devices[odd].to_string()}));
      REQUIRE(read_accepted(client, large[rank]) == numbers_of(rank, 60));
    });
    std::vector<Sum> sums;
    fleet.for_each([&](std::size_t, auto& client) { sums.emplace_back(client, all, 100); });
    fleet.for_each([&](std::size_t rank, auto& client) { REQUIRE(sums[rank].right(client)); });
  }
}

TEMPLATE_TEST_CASE("Transfers of different sizes or types are a mismatch for both, and the next ones work", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const auto& devices = fleet.devices();
  const Handle source = to_device(fleet[0], numbers_of(0, 60));
  const Handle destination = to_device(fleet[1], numbers_of(1, 30));
  const Handle large = fleet[1].empty(source.size());
  fleet[0].send(source, ElementType::I32, devices[1]);
  fleet[1].receive(destination, ElementType::I32, devices[0]);
  fleet[0].send(source, ElementType::F32, devices[1]);
  fleet[1].receive(large, ElementType::I32, devices[0]);
  fleet[0].send(source, ElementType::I32, devices[1]);
  fleet[1].receive(large, ElementType::I32, devices[0]);
  const auto sent = failures_of(fleet[0]);
  const auto received = failures_of(fleet[1]);
  REQUIRE(kinds_of(sent) == std::vector(2, Kind::Mismatch));
  REQUIRE(kinds_of(received) == std::vector(2, Kind::Mismatch));
  REQUIRE(mentions(sent[0].what, {"the count is"}));
  REQUIRE(mentions(received[1].what, {"the element type is"}));
  REQUIRE(read_accepted(fleet[1], destination) == numbers_of(1, 30));
  REQUIRE(read_soon(fleet[1], large) == numbers_of(0, 60));
}
