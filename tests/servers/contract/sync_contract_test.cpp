// L15: a wait ends with what it says. sync() waits for the collectives and transfers of its stream, and nothing else
// waits for that; a thread that drives several ranks may ask for everything in any order, as long as it waits last.

#include <coxswain/runtime/client/sync_all.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/log_lines.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

/// A collective or transfer between two devices, of which each rank asks for its part.
template <class Fleet>
struct TwoRanks {
  enum class Kind : std::uint8_t { Collective, Transfer };

  explicit TwoRanks(Kind of) : kind(of) {
    fleet.for_each([&](std::size_t rank, auto& client) {
      memory[rank] = to_device(client, numbers_of(rank, 100));
      settle(client);
    });
    submit(0);  // it is made
    submit(1);
    fleet.for_each([&](std::size_t rank, auto& client) {
      settle(client);
      client.write(memory[rank], Bytes::copy_of(numbers_of(rank, 100)));
      settle(client);
    });
  }
  void submit(std::size_t rank) {
    if (kind == Kind::Collective) {
      fleet[rank].all_reduce(memory[rank], memory[rank], ElementType::I32, fleet.devices());
    } else if (rank == 0) {
      fleet[0].send(memory[0], ElementType::I32, fleet.devices()[1]);
    } else {
      fleet[1].receive(memory[1], ElementType::I32, fleet.devices()[0]);
    }
  }
  [[nodiscard]] Numbers expected(std::size_t rank) const {
    if (kind == Kind::Collective) return sum_of(2, 100);
    static_cast<void>(rank);
    return numbers_of(0, 100);
  }
  /// What the memory holds as somebody finds it who waits for nothing but what a sync has said.
  [[nodiscard]] Numbers found(std::size_t rank) {
    auto& client = fleet[rank];
    const auto resource = client.get_resource(memory[rank]);
    return Fleet::Backend::peek(client, resource.resource).template to_vector<std::int32_t>();
  }

  Fleet fleet{2};
  Kind kind;
  std::array<Handle, 2> memory;
};

}  // namespace

TEMPLATE_TEST_CASE("L15: a sync waits for the collectives and transfers of its stream, and the stream does not", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  using Ranks = TwoRanks<TestType>;
  Ranks ranks(GENERATE(Ranks::Kind::Collective, Ranks::Kind::Transfer));
  const std::size_t first = GENERATE(std::size_t{0}, std::size_t{1});
  auto& client = ranks.fleet[first];
  const Handle other = to_device(client, numbers_of(5, 3));
  ranks.submit(first);
  Future<void> end = client.sync();
  Future<void> next = client.sync();
  REQUIRE(read_soon(client, other) == numbers_of(5, 3));  // the stream goes on
  REQUIRE_FALSE(end.wait_for(std::chrono::milliseconds(20)));
  ranks.submit(1 - first);
  get_soon(std::move(end));
  get_soon(std::move(next));
  REQUIRE(ranks.found(first) == ranks.expected(first));
  get_soon(ranks.fleet[1 - first].sync());
}

TEMPLATE_TEST_CASE("L15: one thread drives two ranks in any order, if it waits last", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  using Ranks = TwoRanks<TestType>;
  Ranks ranks(GENERATE(Ranks::Kind::Collective, Ranks::Kind::Transfer));
  // Steps 0 and 1: the ranks submit; 2 and 3: they sync, behind that; 4 and 5: the thread waits for them.
  std::array<int, 6> order{0, 1, 2, 3, 4, 5};
  do {
    const auto at = [&](int step) { return std::ranges::find(order, step) - order.begin(); };
    const bool submits_first = at(0) < at(2) && at(1) < at(3) && at(2) < at(4) && at(3) < at(5);
    const bool waits_last = std::max(at(0), at(1)) < std::min(at(4), at(5));
    if (!submits_first || !waits_last) continue;
    std::array<std::optional<Future<void>>, 2> ends;
    ranks.fleet.for_each([&](std::size_t rank, auto& client) {
      client.write(ranks.memory[rank], Bytes::copy_of(numbers_of(rank, 100)));
    });
    for (const int step : order) {
      const auto rank = static_cast<std::size_t>(step % 2);
      if (step < 2) {
        ranks.submit(rank);
      } else if (step < 4) {
        ends[rank].emplace(ranks.fleet[rank].sync());
      } else {
        get_soon(std::move(*ends[rank]));
        REQUIRE(ranks.found(rank) == ranks.expected(rank));
      }
    }
  } while (std::ranges::next_permutation(order).found);
}

TEMPLATE_TEST_CASE("L15: sync_all waits for all ranks, and tells the failures of the first that has any", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  using Ranks = TwoRanks<TestType>;
  Ranks ranks(Ranks::Kind::Collective);
  std::vector<typename TestType::Client> clients;
  ranks.fleet.for_each([&](std::size_t rank, auto& client) {
    ranks.submit(rank);
    clients.push_back(client);
  });
  sync_all(clients);
  for (const std::size_t rank : {0U, 1U}) REQUIRE(ranks.found(rank) == ranks.expected(rank));
  for (auto& client : clients) launch(client, TestType::Backend::misused());
  REQUIRE_THROWS_AS(sync_all(clients), ServerError);
  REQUIRE_THROWS_AS(get_soon(clients[1].sync()), ServerError);  // kept for it
  sync_all(clients);
}

TEMPLATE_TEST_CASE("L15: a failed collective is told by the sync of its stream", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  const CollectiveTimeout timeout(std::chrono::milliseconds(100));
  TestType fleet(2);
  const Handle memory = to_device(fleet[0], numbers_of(0, 100));
  fleet[0].all_reduce(memory, memory, ElementType::I32, fleet.devices());
  Future<void> end = fleet[0].sync();
  try {
    get_soon(std::move(end));
    FAIL("a rank did not come");
  } catch (const ServerError& error) {
    REQUIRE(kind_of<CollectiveError>([&] { std::rethrow_exception(error.cause()); }) == CollectiveError::Kind::Timeout);
  }
}

TEMPLATE_TEST_CASE("L15: a thread that waits for a rank before it submits for another is told why nothing happens", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  using Ranks = TwoRanks<TestType>;
  LogLines log(LogSubsystem::Collectives, LogLevel::Warn);
  Ranks ranks(Ranks::Kind::Collective);
  ranks.submit(0);
  std::thread waiting([end = ranks.fleet[0].sync()]() mutable { get_soon(std::move(end)); });
  const auto explanation = [&] {
    for (const std::string& line : log.get())
      if (mentions(line, {"a thread waits for " + ranks.fleet.devices()[0].to_string(), "all_reduce",
                          ranks.fleet.devices()[1].to_string() + " is missing", "must submit for all of them"}))
        return true;
    return false;
  };
  std::exception_ptr failure;
  try {
    wait_until(explanation);
  } catch (...) {
    failure = std::current_exception();
  }
  ranks.submit(1);
  waiting.join();
  REQUIRE(failure == nullptr);
  get_soon(ranks.fleet[1].sync());
}
