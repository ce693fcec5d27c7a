#include <coxswain/tools/cox/stress/round_book.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <utility>
#include <vector>

using namespace cox::stress;

namespace {

Options three_devices() {
  Options options;
  options.devices = {{0, 0}, {0, 1}, {0, 2}};
  options.clients = 1;
  return options;
}

struct BookBench {
  Options options = three_devices();
  RoundBook book{options, 1U << 20U};
  Random random{1};
  RoundLine& line = book.pick_line(Operation::AllReduce, random);
  std::map<std::size_t, std::vector<std::uint64_t>> made;  // by rank: the numbers of the rounds

  std::shared_ptr<Round> round(Fault fault = Fault::None) {
    auto made_round = std::make_shared<Round>(line.devices.size());
    made_round->parts.emplace_back();
    made_round->line = &line;
    made_round->fault = fault;
    return made_round;
  }
  bool call() {
    return book.call_next(random, [&](Round& called, std::size_t rank) { made[rank].push_back(called.number); });
  }
  void call_all() {
    while (call()) continue;
  }
};

}  // namespace

TEST_CASE("Each rank's calls are made in the order of the rounds, and a round is checked when all of its are") {
  BookBench bench;
  const auto first = bench.round();
  REQUIRE(bench.book.append({first, bench.round()}, false));
  CHECK(bench.book.take_called(bench.random) == nullptr);
  bench.call_all();
  CHECK(bench.made.size() == bench.line.devices.size());
  for (const auto& [rank, numbers] : bench.made) CHECK(numbers == std::vector<std::uint64_t>{1, 2});
  CHECK(bench.book.take_called(bench.random) != nullptr);
  CHECK(bench.book.take_called(bench.random) != nullptr);
  CHECK(bench.book.take_called(bench.random) == nullptr);
}

TEST_CASE("What a missing rank left out is not called, and it goes on when that has timed out") {
  BookBench bench;
  bench.options.faults.missing = 0.1;
  const auto missing = bench.round(Fault::Missing);
  const auto after = bench.round(Fault::Missing);
  after->missing_before = missing;
  REQUIRE(bench.book.append({missing, after}, true));
  CHECK_FALSE(bench.book.append({bench.round()}, false));  // it rests
  bench.call_all();
  CHECK(bench.made.count(0) == 0);
  CHECK(bench.book.take_called(bench.random) == missing);
  missing->timed_out = true;
  bench.call_all();
  CHECK(bench.made[0] == std::vector<std::uint64_t>{2});
  CHECK(bench.book.take_called(bench.random) == after);

  CHECK(bench.book.ended(*missing) == nullptr);
  RoundGroup* const group = bench.book.ended(*after);
  REQUIRE(group != nullptr);
  bench.book.renewed(*group);
  CHECK(bench.book.append({bench.round()}, false));
}

TEST_CASE("A group rests while a device of it is shut down, and its calls can be dropped") {
  BookBench bench;
  const auto round = bench.round();
  REQUIRE(bench.book.append({round}, false));
  const std::size_t device = bench.line.devices.front();
  bench.book.shake(device);
  CHECK(round->shaken);
  CHECK_FALSE(bench.book.append({bench.round()}, false));
  bench.book.drop_calls(device, true);
  bench.call_all();
  CHECK(bench.made.size() == 1);
  CHECK(bench.made.count(0) == 1);
  CHECK(bench.book.called_all(device));
  CHECK(bench.book.take_called(bench.random) == round);
  CHECK(bench.book.ended(*round) == nullptr);  // still held
  const auto groups = bench.book.released(device);
  CHECK_FALSE(groups.empty());
  for (RoundGroup* const group : groups) bench.book.renewed(*group);
  CHECK(bench.book.append({bench.round()}, false));
}

TEST_CASE("A device is not shut down while somebody renews a group of it, which would fail") {
  BookBench bench;
  const auto round = bench.round(Fault::Missing);
  REQUIRE(bench.book.append({round}, true));
  bench.call_all();
  RoundGroup* const group = bench.book.ended(*round);
  REQUIRE(group != nullptr);
  const auto shaken = std::async(std::launch::async, [&] { bench.book.shake(bench.line.devices.front()); });
  CHECK(shaken.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  bench.book.renewed(*group);
  shaken.wait();
  CHECK_FALSE(bench.book.append({bench.round()}, false));  // it rests
}

TEST_CASE("L10: a round that does not end is reported with its operation and devices") {
  BookBench bench;
  const auto round = bench.round();
  REQUIRE(bench.book.append({round}, false));
  CHECK_FALSE(bench.book.overdue(std::chrono::hours(1)).has_value());
  const auto violation = bench.book.overdue(std::chrono::seconds(0));
  REQUIRE(violation.has_value());
  CHECK(violation->law == Law::Deadlock);
  CHECK(violation->expected.find("all_reduce of {host:") == 0);
  CHECK(violation->got.find("ranks have not been called yet") != std::string::npos);
  bench.call_all();
  static_cast<void>(bench.book.ended(*round));
  CHECK_FALSE(bench.book.overdue(std::chrono::seconds(0)).has_value());
}
