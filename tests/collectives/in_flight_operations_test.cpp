#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>
#include <coxswain/tests/support/manual_device_event.hpp>

#include <coxswain/collectives/nccl/in_flight_operations.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

using namespace cox;
using cox::detail::InFlightOperations;
using cox::test::ManualDeviceEvent;

namespace {

constexpr std::size_t rank_count = 3;

class SilentLaunch final : public NcclLaunch {
 public:
  void fail(const std::exception_ptr&) noexcept override {}
};

/// Operations of three ranks, numbered from 1, and what is left of them.
class LetGoBench {
 public:
  LetGoBench()
      : in_flight(rank_count, [this](std::size_t rank, std::span<const std::uint64_t> sequences) {
          notified[rank].insert(notified[rank].end(), sequences.begin(), sequences.end());
        }) {}

  void begin(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      held.push_back(std::make_shared<NcclOperation>(CollectiveRequests{{.count = 1}}, rank_count));
      held.back()->sequence = held.size();
      operations.push_back(held.back());
      ends.emplace_back();
      for (auto& end : ends.back()) end = std::make_shared<ManualDeviceEvent>();
      launches.emplace_back();
    }
  }
  /// All that was begun, but for what was before.
  void launch(std::size_t rank, std::size_t before = 0) {
    std::vector<std::shared_ptr<NcclLaunch>> launched = prepare(rank, before);
    in_flight.add(rank, launched);
  }
  std::vector<std::shared_ptr<NcclLaunch>> prepare(std::size_t rank, std::size_t before = 0) {
    std::vector<std::shared_ptr<NcclLaunch>> launched;
    for (std::size_t i = before; i < held.size(); ++i) {
      auto launch = std::make_shared<SilentLaunch>();
      launches[i][rank] = launch;
      launch->operation = held[i];
      launch->completion = ends[i][rank];
      launched.push_back(std::move(launch));
    }
    return launched;
  }
  void launch_all() {
    for (std::size_t rank = 0; rank < rank_count; ++rank) launch(rank);
    held.clear();
  }
  void note_completed(std::size_t rank, std::uint64_t before) {
    InFlightOperations::CompletedBatch completed(in_flight);
    in_flight.note_completed(rank, before, completed);
  }
  void poll() {
    while (const auto oldest = in_flight.oldest()) {
      if (!oldest->has_ended()) return;
      InFlightOperations::CompletedBatch completed(in_flight);
      in_flight.pop(*oldest, completed);
    }
  }
  /// Operations whose part the rank has let go of.
  [[nodiscard]] std::size_t let_go(std::size_t rank) const {
    std::size_t count = 0;
    for (const auto& of : launches) count += of[rank].expired() ? 1U : 0U;
    return count;
  }
  [[nodiscard]] std::size_t gone() const {
    std::size_t count = 0;
    for (const auto& operation : operations) count += operation.expired() ? 1U : 0U;
    return count;
  }

  std::array<std::vector<std::uint64_t>, rank_count> notified;
  InFlightOperations in_flight;
  std::vector<std::shared_ptr<NcclOperation>> held;
  std::vector<std::weak_ptr<NcclOperation>> operations;
  std::vector<std::array<std::shared_ptr<ManualDeviceEvent>, rank_count>> ends;
  std::vector<std::array<std::weak_ptr<SilentLaunch>, rank_count>> launches;
};

using Numbers = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("Each rank lets go of its own parts of what has ended on all devices, and rank 0 of the operations") {
  LetGoBench bench;
  bench.begin(10);
  bench.launch_all();
  bench.note_completed(0, 10);
  bench.note_completed(1, 10);
  for (std::size_t rank = 0; rank < rank_count; ++rank) CHECK(bench.let_go(rank) == 0);
  bench.note_completed(2, 4);
  CHECK(bench.let_go(2) == 4);
  CHECK(bench.notified[2] == Numbers{1, 2, 3, 4});
  CHECK(bench.let_go(0) + bench.let_go(1) == 0);
  bench.note_completed(0, 10);
  CHECK(bench.let_go(0) == 4);
  CHECK(bench.gone() == 0);  // rank 1 has its parts still
  bench.note_completed(1, 10);
  CHECK(bench.let_go(1) == 4);
  CHECK(bench.gone() == 0);  // no other rank destroys what rank 0 has made
  bench.note_completed(0, 10);
  CHECK(bench.gone() == 4);
  for (const Numbers& told : bench.notified) CHECK(told == Numbers{1, 2, 3, 4});
  CHECK_FALSE(bench.in_flight.empty());
}

TEST_CASE("Who looks takes what has ended, and tells for the ranks that have not let go of it") {
  LetGoBench bench;
  bench.begin(5);
  bench.launch_all();
  for (std::size_t i = 0; i < 3; ++i)
    for (const auto& end : bench.ends[i]) end->reach();
  bench.ends[3][0]->reach();  // of this one, only rank 0's
  for (std::size_t rank = 0; rank < rank_count; ++rank) bench.note_completed(rank, 2);
  CHECK(bench.let_go(2) == 2);  // the others came before it had told
  CHECK(bench.let_go(0) == 0);
  bench.poll();
  CHECK(bench.gone() == 3);
  for (const Numbers& told : bench.notified) CHECK(told == Numbers{1, 2, 3});
  for (std::size_t rank = 0; rank < rank_count; ++rank) bench.note_completed(rank, 4);
  for (std::size_t rank = 0; rank < rank_count; ++rank) bench.note_completed(rank, 4);
  for (const Numbers& told : bench.notified) CHECK(told == Numbers{1, 2, 3, 4});
  CHECK(bench.gone() == 3);  // rank 0 came before the others had let go
  bench.note_completed(0, 4);
  CHECK(bench.gone() == 4);
}

TEST_CASE("However much has ended, all of it is let go of in time") {
  LetGoBench bench;
  bench.begin(500);
  bench.launch_all();
  for (const auto& ends : bench.ends)
    for (const auto& end : ends) end->reach();
  SECTION("by the ranks") {
    for (int i = 0; i < 20; ++i)
      for (std::size_t rank = 0; rank < rank_count; ++rank) bench.note_completed(rank, 500);
  }
  SECTION("by who looks") { bench.poll(); }
  CHECK(bench.in_flight.empty());
  CHECK(bench.gone() == 500);
  for (const Numbers& told : bench.notified) {
    REQUIRE(told.size() == 500);
    for (std::size_t i = 0; i < told.size(); ++i) CHECK(told[i] == i + 1);
  }
}

TEST_CASE("An operation that has ended is taken once") {
  LetGoBench bench;
  bench.begin(2);
  bench.launch_all();
  for (const auto& end : bench.ends[0]) end->reach();
  for (int i = 0; i < 2; ++i) {
    auto oldest = bench.in_flight.oldest();
    REQUIRE(oldest);
    CHECK(oldest->has_ended() == (i == 0));
    for (int looks = 0; looks < 2; ++looks) {  // two threads have seen the same
      InFlightOperations::CompletedBatch completed(bench.in_flight);
      if (i == 0) bench.in_flight.pop(*oldest, completed);
    }
    CHECK(bench.notified[1] == Numbers{1});
    CHECK_FALSE(bench.in_flight.empty());
  }
  CHECK(bench.gone() == 1);
}

TEST_CASE("An operation is overdue when no further rank has arrived, or it has not ended, for the timeout") {
  using namespace std::chrono_literals;
  const NcclOperation::Time start{1000s};
  LetGoBench bench;
  bench.begin(2);
  bench.launch_all();
  const auto oldest = bench.in_flight.oldest();
  REQUIRE(oldest);
  const auto after = [&](std::chrono::seconds time, std::size_t arrived) {
    return bench.in_flight.is_overdue(*oldest, arrived, 10s, start + time);
  };
  CHECK_FALSE(after(0s, 0));
  CHECK_FALSE(after(100s, 0));  // no rank waits
  CHECK_FALSE(after(101s, 1));
  CHECK_FALSE(after(110s, 1));
  CHECK(after(111s, 1));
  CHECK_FALSE(after(112s, 3));
  CHECK(after(122s, 3));
  for (const auto& end : bench.ends[0]) end->reach();
  bench.poll();
  CHECK_FALSE(after(123s, 3));  // another one is the oldest now
}

TEST_CASE("What is given up is nobody's to let go of") {
  LetGoBench bench;
  bench.begin(4);
  bench.launch_all();
  for (std::size_t rank = 0; rank < rank_count; ++rank) bench.note_completed(rank, 1);
  InFlightOperations::Operations given_up;
  bench.in_flight.abandon(given_up);
  CHECK(bench.in_flight.empty());
  CHECK(given_up.size() == 4);
  CHECK(given_up.front()->ranks[2].completed);
  for (std::size_t rank = 0; rank < rank_count; ++rank) bench.note_completed(rank, 4);
  CHECK(bench.notified[0].empty());
  CHECK(bench.notified[2] == Numbers{1});
  CHECK(bench.gone() == 0);
}

TEST_CASE("Parts that there is no memory for have not been added") {
  for (int k = 0;; ++k) {
    REQUIRE(k < 100);
    LetGoBench bench;
    bench.begin(300);
    std::vector<std::shared_ptr<NcclLaunch>> launched = bench.prepare(1);
    bool added = true;
    cox::test::allocations_until_failure = k;
    try {
      bench.in_flight.add(1, launched);
    } catch (const std::bad_alloc&) {
      added = false;
    }
    cox::test::allocations_until_failure = -1;
    CHECK(bench.in_flight.empty() == !added);
    for (std::size_t i = 0; i < 300; ++i) CHECK(bench.held[i]->is_started == added);
    if (!added) continue;
    CHECK(k > 0);
    return;
  }
}
