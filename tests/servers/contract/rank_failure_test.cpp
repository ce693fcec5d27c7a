// A rank that comes and cannot take part: every rank is told, with the cause (L12), and the communicator serves on.

#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/profile/profile_error.hpp>

#include <cstddef>
#include <exception>
#include <optional>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

std::optional<IoError::Kind> io_kind_of(const std::exception_ptr& error) {
  return kind_of<IoError>([&] { std::rethrow_exception(error); });
}

/// Rank 1 uses `bad` as its source; the others' memory is good. Returns the causes that the ranks were told.
template <class Fleet>
std::vector<std::exception_ptr> causes_of(Fleet& fleet, const Handle& bad) {
  const CommunicationId all(fleet.devices());
  std::vector<Handle> results;
  fleet.for_each([&](std::size_t rank, auto& client) {
    const Handle source = rank == 1 ? bad : client.create(Bytes::copy_of(numbers_of(rank, bad.size_in_used() / 4)));
    results.push_back(to_device(client, numbers_of(9, bad.size_in_used() / 4)));
    client.all_reduce(source, results.back(), ElementType::I32, all);
  });
  std::vector<std::exception_ptr> causes;
  fleet.for_each([&](std::size_t rank, auto& client) {
    const auto failures = failures_of(client);
    REQUIRE(kinds_of(failures) == std::vector{Kind::RankFailed});
    REQUIRE(mentions(failures[0].what, {fleet.devices()[1].to_string() + " could not take part"}));
    REQUIRE(read_accepted(client, results[rank]) == numbers_of(9, bad.size_in_used() / 4));
    causes.push_back(failures[0].cause);
  });
  std::vector<Sum> sums;
  fleet.for_each([&](std::size_t, auto& client) { sums.emplace_back(client, all, 100); });
  fleet.for_each([&](std::size_t rank, auto& client) { REQUIRE(sums[rank].right(client)); });
  return causes;
}

}  // namespace

TEMPLATE_TEST_CASE("A handle of another device fails its rank, and every rank knows", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const Handle foreign = to_device(fleet[0], numbers_of(0, 100));
  for (const std::exception_ptr& cause : causes_of(fleet, foreign))
    REQUIRE(io_kind_of(cause) == IoError::Kind::WrongDevice);
}

TEMPLATE_TEST_CASE("A handle from before a shutdown fails its rank, and every rank knows", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const Handle old = to_device(fleet[1], numbers_of(0, 100));
  fleet.reopen(1);
  for (const std::exception_ptr& cause : causes_of(fleet, old))
    REQUIRE(io_kind_of(cause) == IoError::Kind::StaleHandle);
}

TEMPLATE_TEST_CASE("L12: memory that could not be had fails its rank, and every rank knows the first cause", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const Handle nothing = fleet[1].empty(std::size_t{1} << 60);
  REQUIRE_THROWS_AS(get_soon(fleet[1].sync()), ServerError);
  for (const std::exception_ptr& cause : causes_of(fleet, nothing.offset_end(nothing.size() - 400))) {
    REQUIRE(io_kind_of(cause) == IoError::Kind::AllocationFailed);
    REQUIRE(mentions(describe(cause), {"1152921504606846976 B"}));
  }
}

TEMPLATE_TEST_CASE("L12: transfers go on on a stream with failures that nobody was told", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const Handle source = to_device(fleet[0], numbers_of(0, 100));
  static_cast<void>(fleet[0].empty(std::size_t{1} << 60));
  const Handle there = fleet[0].to_client(source, fleet[1], ElementType::I32);
  REQUIRE(read_soon(fleet[1], there) == numbers_of(0, 100));
  REQUIRE_THROWS_AS(settle(fleet[0]), ServerError);
}

TEMPLATE_TEST_CASE("L12: a failure belongs to the stream that asked, not to others of the device", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  auto other = fleet[0];
  other.set_stream(StreamId::allocate());
  const Handle mine = to_device(fleet[0], numbers_of(0, 100));
  const Handle others = to_device(other, numbers_of(0, 100));
  fleet[0].all_reduce(mine, mine, ElementType::I32, all);
  fleet[1].barrier(all);
  settle(other);
  other.flush();
  REQUIRE(read_accepted(other, mine) == numbers_of(0, 100));  // waits for it, and is not told
  REQUIRE(read_soon(other, others) == numbers_of(0, 100));
  REQUIRE(kinds_of(failures_of(fleet[0])) == std::vector{Kind::Mismatch});
  REQUIRE(kinds_of(failures_of(fleet[1])) == std::vector{Kind::Mismatch});
  REQUIRE(failures_of(fleet[0]).empty());  // told once
}

TEMPLATE_TEST_CASE("L12: a read of what a collective should have made is told why it is not there", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  const Sum sum(fleet[0], all, 100);
  fleet[1].barrier(all);
  const auto read = [&] { static_cast<void>(fleet[0].read_one(sum.result)); };
  REQUIRE(kind_of<ServerError>(read) == ServerError::Kind::Unhealthy);
  REQUIRE(kinds_of(failures_of(fleet[1])) == std::vector{Kind::Mismatch});
}

TEMPLATE_TEST_CASE("L12: a failure within a profile is the profile's, not that of a collective behind it", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  std::optional<Sum> second;
  auto duration = fleet[1].profile([&] {
    static_cast<void>(fleet[1].empty(std::size_t{1} << 60));
    second.emplace(fleet[1], all, 100);
  });
  const Sum first(fleet[0], all, 100);
  CHECK(failures_of(fleet[0]).empty());
  CHECK(failures_of(fleet[1]).empty());
  CHECK(first.right(fleet[0]));
  CHECK(second->right(fleet[1]));
  CHECK_THROWS_AS(duration.get(), ProfileError);
}
