// L14 between devices of any kind: a collective or a transfer that would read poisoned memory fails on every rank with
// the first cause and leaves the communicator good; one that is given up poisons what it should have written, and all
// that was queued behind it, on every rank.

#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/poison_contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <optional>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

template <class Fleet>
bool is_rank_failure(const std::exception_ptr& error, DeviceId failed) {
  const auto* const found = find_cause<CollectiveError>(error, Kind::RankFailed);
  return found != nullptr && is_late_failure<typename Fleet::Backend>(error) &&
         mentions(found->what(), {failed.to_string(), "could not take part"});
}
template <class Fleet>
bool is_poisoned(const typename Fleet::Client& client, const Handle& handle) {
  return is_poisoned_by_late_failure<typename Fleet::Backend>(failure_of_read(client, handle));
}
/// Of memory that a collective should have written which was given up.
template <class Client>
bool reads_given_up(const Client& client, const Handle& handle) {
  const std::exception_ptr error = failure_of_read(client, handle);
  return find_cause<IoError>(error, IoError::Kind::Poisoned) != nullptr &&
         find_cause<CollectiveError>(error, Kind::Timeout) != nullptr;
}

/// Two devices or more of which the second is held up until a collective of the first two has been given up, which the
/// first has begun.
template <class Fleet>
struct GivenUpPair {
  explicit GivenUpPair(std::size_t devices) : fleet(devices) {
    const CollectiveTimeout timeout{std::chrono::milliseconds(200)};  // of this communicator alone
    fleet.for_each([&](std::size_t rank, auto& client) {
      sums.push_back(to_device(client, numbers_of(rank, 100)));
      results.push_back(to_device(client, numbers_of(9, 100)));
    });
    reduce();  // it is made
    fleet.for_each([&](std::size_t rank, auto& client) {
      settle(client);
      client.write(sums[rank], Bytes::copy_of(numbers_of(rank, 100)));
      settle(client);
    });
    hold.launch(fleet[1]);
    hold.wait_until_entered();
  }
  /// The sum of the first two, in place.
  void reduce() {
    for (std::size_t rank = 0; rank < 2; ++rank) fleet[rank].all_reduce(sums[rank], sums[rank], ElementType::I32, pair);
  }
  /// Takes what has become of it on the first device.
  [[nodiscard]] std::exception_ptr failure() {
    try {
      settle(fleet[0]);
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  Fleet fleet;
  CommunicationId pair{std::vector<DeviceId>{fleet.devices()[0], fleet.devices()[1]}};
  std::vector<Handle> sums;
  std::vector<Handle> results;
  typename Fleet::Hold hold;
};

}  // namespace

TEMPLATE_TEST_CASE("L14: no rank hands out a sum over what a failed kernel left, whenever that fails", "[poison]",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  using Backend = typename TestType::Backend;
  const auto moment = GENERATE(FailureMoment::Before, FailureMoment::Meanwhile, FailureMoment::After);
  const std::size_t count = GENERATE(std::size_t{10}, std::size_t{200'000});  // by kernels of our own, by NCCL
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  for (int i = 0; i < 5; ++i) {
    std::vector<Handle> sources;
    std::vector<Handle> results;
    std::vector<Handle> further;
    fleet.for_each([&](std::size_t rank, auto& client) {
      sources.push_back(to_device(client, numbers_of(rank, count)));
      results.push_back(to_device(client, numbers_of(9, count)));
      further.push_back(to_device(client, numbers_of(9, count)));
      settle(client);
    });
    const auto reduce = [&] {
      fleet.for_each([&](std::size_t rank, auto& client) {
        client.all_reduce(sources[rank], results[rank], ElementType::I32, all);
        client.sync_collective();
        launch(client, Backend::copy(results[rank], further[rank]));
      });
    };
    fail_around<Backend>(fleet[1], sources[1], moment, reduce);
    fleet.for_each([&](std::size_t rank, auto& client) {
      REQUIRE(is_rank_failure<TestType>(next_failure(client), fleet.devices()[1]));
      REQUIRE(is_poisoned<TestType>(client, results[rank]));
      REQUIRE(is_poisoned<TestType>(client, further[rank]));
    });
    REQUIRE(is_poisoned<TestType>(fleet[1], sources[1]));
    REQUIRE(read_soon(fleet[0], sources[0]) == numbers_of(0, count));

    // The communicator is good, and what is written anew is, too.
    fleet[1].write(sources[1], Bytes::copy_of(numbers_of(1, count)));
    fleet.for_each(
        [&](std::size_t rank, auto& client) { client.write(further[rank], Bytes::copy_of(numbers_of(9, count))); });
    reduce();
    fleet.for_each([&](std::size_t rank, auto& client) {
      REQUIRE(read_soon(client, results[rank]) == sum_of(2, count));
      REQUIRE(read_soon(client, further[rank]) == sum_of(2, count));
      REQUIRE(next_failure(client) == nullptr);
    });
  }
}

TEMPLATE_TEST_CASE("L14: a failed kernel on other memory does not concern a collective of its stream", "[poison]",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  using Backend = typename TestType::Backend;
  const auto moment = GENERATE(FailureMoment::Before, FailureMoment::Meanwhile, FailureMoment::After);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  const Handle other = to_device(fleet[1], numbers_of(1, 10));
  std::vector<Handle> sums;
  fleet.for_each([&](std::size_t rank, auto& client) { sums.push_back(to_device(client, numbers_of(rank, 10))); });
  fail_around<Backend>(fleet[1], other, moment, [&] {
    fleet.for_each(
        [&](std::size_t rank, auto& client) { client.all_reduce(sums[rank], sums[rank], ElementType::I32, all); });
  });
  if (moment != FailureMoment::Before) REQUIRE(is_late_failure<Backend>(next_failure(fleet[1])));
  fleet.for_each([&](std::size_t rank, auto& client) { REQUIRE(read_soon(client, sums[rank]) == sum_of(2, 10)); });
}

TEMPLATE_TEST_CASE("L14: poison passes from one collective to the next on every rank", "[poison]", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  using Backend = typename TestType::Backend;
  const auto moment = GENERATE(FailureMoment::Before, FailureMoment::Meanwhile, FailureMoment::After);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  std::vector<Handle> sums;
  std::vector<Handle> gathered;
  fleet.for_each([&](std::size_t rank, auto& client) {
    sums.push_back(to_device(client, numbers_of(rank, 10)));
    gathered.push_back(to_device(client, numbers_of(rank, 20)));
    settle(client);
  });
  fail_around<Backend>(fleet[0], sums[0], moment, [&] {
    fleet.for_each([&](std::size_t rank, auto& client) {
      client.all_reduce(sums[rank], sums[rank], ElementType::I32, all);  // in place: does not heal
      client.all_gather(sums[rank], gathered[rank], ElementType::I32, all);
    });
  });
  fleet.for_each([&](std::size_t rank, auto& client) {
    REQUIRE(is_rank_failure<TestType>(next_failure(client), fleet.devices()[0]));
    REQUIRE(is_poisoned<TestType>(client, sums[rank]));
    REQUIRE(is_poisoned<TestType>(client, gathered[rank]));
  });
}

TEMPLATE_TEST_CASE("L14: no transfer hands out what a failed kernel left, whenever that fails - any device", "[poison]",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  using Backend = typename TestType::Backend;
  const auto moment = GENERATE(FailureMoment::Before, FailureMoment::Meanwhile, FailureMoment::After);
  TestType fleet(2);
  for (int i = 0; i < 10; ++i) {
    const Handle source = to_device(fleet[0], numbers_of(0, 100));
    settle(fleet[0]);
    Handle there;
    fail_around<Backend>(fleet[0], source, moment,
                         [&] { there = fleet[0].to_client(source, fleet[1], ElementType::I32); });
    REQUIRE(is_rank_failure<TestType>(next_failure(fleet[1]), fleet.devices()[0]));
    REQUIRE(is_poisoned<TestType>(fleet[1], there));
    REQUIRE(is_late_failure<Backend>(next_failure(fleet[0])));
    const Handle next = to_device(fleet[0], numbers_of(0, 100));
    REQUIRE(read_soon(fleet[1], fleet[0].to_client(next, fleet[1], ElementType::I32)) == numbers_of(0, 100));
  }
}

// NCCL completes such a rank's part when it has written to buffers of the others, which may not have begun.
TEMPLATE_TEST_CASE("L14: a rank that only gives to a reduce fails with the others, however late they begin", "[poison]",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  using Backend = typename TestType::Backend;
  const std::size_t operations = GENERATE(std::size_t{1}, std::size_t{2});  // of the group
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  const DeviceId to = all.devices()[1];
  const auto& giver = fleet[0];
  const auto& root = fleet[1];
  std::vector<std::vector<Handle>> data(2);
  const auto reduce = [&](std::size_t rank) {
    fleet[rank].collective_group(all, [&](CollectiveGroup& group) {
      for (const Handle& each : data[rank]) group.reduce(each, each, ElementType::I32, ReduceOperation::Sum, to);
    });
  };
  fleet.for_each([&](std::size_t rank, auto& client) {
    for (std::size_t i = 0; i < operations; ++i) data[rank].push_back(to_device(client, numbers_of(rank, 10)));
    reduce(rank);  // all is made
  });
  fleet.for_each([&](std::size_t, auto& client) { settle(client); });

  launch(root, Backend::fail_on(root, data[1].back()));
  reduce(1);
  reach(root);
  std::promise<void> begin;
  root.device_handle().submit([begin = begin.get_future().share()](auto&) { begin.wait(); });
  reduce(0);
  giver.sync_collective();
  auto end = giver.sync();
  static_cast<void>(end.wait_for(std::chrono::milliseconds(100)));  // as long as it would take without the root
  begin.set_value();
  std::exception_ptr failure;
  try {
    get_soon(std::move(end));
  } catch (...) {
    failure = std::current_exception();
  }
  REQUIRE(is_rank_failure<TestType>(failure, to));
  REQUIRE(is_late_failure<Backend>(next_failure(root)));
  for (const Handle& sum : data[1]) REQUIRE(is_poisoned<TestType>(root, sum));
  for (const Handle& given : data[0]) REQUIRE(read_soon(giver, given) == numbers_of(0, 10));
}

TEMPLATE_TEST_CASE("L14: what was issued behind a collective that is given up is poisoned by it", "[poison]",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  using Backend = typename TestType::Backend;
  GivenUpPair<TestType> f(2);
  auto& first = f.fleet[0];
  auto apart = first;
  apart.set_stream(StreamId::allocate());
  const Handle overwritten = to_device(first, numbers_of(3, 100));
  const Handle late = to_device(apart, numbers_of(3, 100));
  settle(first);
  settle(apart);
  f.reduce();
  first.sync_collective();
  launch(first, Backend::copy(f.sums[0], f.results[0]));
  launch(apart, Backend::copy(f.results[0], late));  // on another stream, at second hand
  launch(first, Backend::copy(f.sums[0], overwritten));
  first.write(overwritten, Bytes::copy_of(numbers_of(7, 100)));  // heals it
  auto read = apart.read_async(std::vector<Handle>{late});
  const std::exception_ptr failure = f.failure();
  f.hold.open();
  REQUIRE(find_cause<CollectiveError>(failure, Kind::Timeout) != nullptr);
  std::exception_ptr read_failed;
  try {
    static_cast<void>(get_soon(std::move(read)));
  } catch (...) {
    read_failed = std::current_exception();
  }
  REQUIRE(find_cause<CollectiveError>(read_failed, Kind::Timeout) != nullptr);
  const std::exception_ptr apart_failed = next_failure(apart);
  for (const Handle* handle : {&f.sums[0], &f.results[0]}) REQUIRE(reads_given_up(first, *handle));
  REQUIRE(reads_given_up(apart, late));
  REQUIRE(read_soon(first, overwritten) == numbers_of(7, 100));
  // The streams are told, too: the read's, unless the read has told it.
  REQUIRE((apart_failed != nullptr || find_cause<LaunchError>(read_failed) != nullptr));
  REQUIRE(find_cause<LaunchError>(failure, LaunchError::Kind::Io) != nullptr);

  // Written anew it is good; so is the communicator, opened again.
  static_cast<void>(next_failure(f.fleet[1]));
  first.write(f.sums[0], Bytes::copy_of(numbers_of(0, 100)));
  launch(apart, Backend::fill(late, 1));
  REQUIRE(next_failure(apart) != nullptr);  // it may read the memory
  apart.write(late, Bytes::copy_of(numbers_of(4, 100)));
  REQUIRE(read_soon(apart, late) == numbers_of(4, 100));
}

TEMPLATE_TEST_CASE("L14: a transfer behind a collective that is given up poisons the receiver's memory", "[poison]",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  GivenUpPair<TestType> f(3);
  f.reduce();
  f.fleet[0].sync_collective();
  const Handle there = f.fleet[0].to_client(f.sums[0], f.fleet[2], ElementType::I32);
  const std::exception_ptr failure = f.failure();
  f.hold.open();
  REQUIRE(find_cause<CollectiveError>(failure, Kind::Timeout) != nullptr);
  REQUIRE(find_cause<CollectiveError>(next_failure(f.fleet[2]), Kind::RankFailed) != nullptr);
  REQUIRE(reads_given_up(f.fleet[2], there));
  static_cast<void>(next_failure(f.fleet[1]));
}

TEMPLATE_TEST_CASE("L14: another communicator's collective behind one that is given up fails on all its ranks",
                   "[poison]", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  GivenUpPair<TestType> f(3);
  const CommunicationId others(std::vector<DeviceId>{f.fleet.devices()[0], f.fleet.devices()[2]});
  for (const std::size_t rank : {0U, 2U})  // it is made
    f.fleet[rank].all_reduce(f.results[rank], f.results[rank], ElementType::I32, others);
  for (const std::size_t rank : {0U, 2U}) settle(f.fleet[rank]);
  f.reduce();
  for (const std::size_t rank : {0U, 2U})
    f.fleet[rank].all_reduce(f.sums[rank], f.results[rank], ElementType::I32, others);
  const std::exception_ptr failure = f.failure();
  f.hold.open();
  REQUIRE(find_cause<CollectiveError>(failure, Kind::Timeout) != nullptr);
  REQUIRE(find_cause<CollectiveError>(next_failure(f.fleet[2]), Kind::RankFailed) != nullptr);
  for (const std::size_t rank : {0U, 2U}) REQUIRE(reads_given_up(f.fleet[rank], f.results[rank]));
  // That communicator is good.
  for (const std::size_t rank : {0U, 2U}) f.fleet[rank].write(f.sums[rank], Bytes::copy_of(numbers_of(rank / 2, 100)));
  for (const std::size_t rank : {0U, 2U})
    f.fleet[rank].all_reduce(f.sums[rank], f.results[rank], ElementType::I32, others);
  for (const std::size_t rank : {0U, 2U}) REQUIRE(read_soon(f.fleet[rank], f.results[rank]) == sum_of(2, 100));
  static_cast<void>(next_failure(f.fleet[1]));
}

TEMPLATE_TEST_CASE("L14: memory that a transfer has written anew is good for the next one", "[poison]", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  using Backend = typename TestType::Backend;
  TestType fleet(3);
  const auto& devices = fleet.devices();
  const CommunicationId pair(std::vector<DeviceId>{devices[0], devices[1]});
  for (int i = 0; i < 50; ++i) {
    const Handle good = to_device(fleet[0], numbers_of(1, 60));
    const Handle bad = to_device(fleet[0], numbers_of(1, 60));
    const Handle between = to_device(fleet[1], numbers_of(2, 60));
    const Handle last = to_device(fleet[2], numbers_of(3, 60));
    launch(fleet[0], Backend::misused_on(bad));
    fleet[0].broadcast(bad, bad, ElementType::I32, pair, devices[0]);
    fleet[1].broadcast(between, between, ElementType::I32, pair, devices[0]);
    for (const Handle& sent : {bad, good}) {
      fleet[0].send(sent, ElementType::I32, devices[1]);
      fleet[1].receive(between, ElementType::I32, devices[0]);
    }
    fleet[1].send(between, ElementType::I32, devices[2]);
    fleet[2].receive(last, ElementType::I32, devices[1]);
    fleet.for_each([&](std::size_t, auto& client) { static_cast<void>(next_failure(client)); });
    REQUIRE_FALSE(last.failure());
    REQUIRE(read_soon(fleet[2], last) == numbers_of(1, 60));
  }
}
