#include <coxswain/tools/cox/stress/agenda.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <coxswain/tools/cox/stress/round_book.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

using namespace cox::stress;

namespace {

Options shared_options(std::optional<std::uint64_t> rounds, std::uint64_t seed = 1) {
  Options options;
  options.devices = {{0, 0}, {0, 1}};
  options.seed = seed;
  options.shared = SharedRun{.devices = {{0, 0, 1}, {0, 1, 1}, {0, 0, 2}, {0, 1, 2}}, .rounds = rounds};
  return options;
}

std::vector<std::uint64_t> begin_all(Agenda& agenda) {
  std::vector<std::uint64_t> begun;
  while (agenda.begin_next([&](std::uint64_t number) {
    begun.push_back(number);
    return true;
  }))
    continue;
  return begun;
}

}  // namespace

TEST_CASE("The rounds of an agenda are a function of the seed and the number, and all are collectives") {
  const Options options = shared_options(100);
  const Options same = shared_options(100);
  const Options other = shared_options(100, 2);
  const Agenda one(options);
  const Agenda two(same);
  const Agenda three(other);
  std::size_t different = 0;
  for (std::uint64_t number = 0; number < 100; ++number) {
    CHECK(one.plan(number) == two.plan(number));
    CHECK(is_collective(one.plan(number).operation));
    if (one.plan(number) != three.plan(number)) ++different;
  }
  CHECK(different == 100);
}

TEST_CASE("A batch of rounds begins when the vote of the batch before it has ended") {
  const Options options = shared_options(std::nullopt);
  Agenda agenda(options);
  CHECK(begin_all(agenda).size() == Agenda::batch);
  CHECK(Agenda::is_vote(0));
  CHECK_FALSE(Agenda::is_vote(1));
  agenda.decide(0, false);
  const auto next = begin_all(agenda);
  REQUIRE(next.size() == Agenda::batch);
  CHECK(next.front() == Agenda::batch);
  CHECK(Agenda::is_vote(next.front()));
  CHECK_FALSE(agenda.is_over());
  agenda.decide(Agenda::batch, true);
  CHECK(begin_all(agenda).empty());
  CHECK(agenda.is_over());
  CHECK_FALSE(agenda.is_complete());
}

TEST_CASE("An agenda with a number of rounds is complete after them, unless a process has ended it before") {
  const Options options = shared_options(Agenda::batch + 10);
  Agenda agenda(options);
  static_cast<void>(begin_all(agenda));
  agenda.decide(0, false);
  CHECK(begin_all(agenda).size() == 10);
  CHECK(agenda.is_over());
  CHECK(agenda.is_complete());
  Agenda ended(options);
  static_cast<void>(begin_all(ended));
  ended.decide(0, true);
  CHECK(ended.is_over());
  CHECK_FALSE(ended.is_complete());
}

TEST_CASE("Only the ranks of this process are called, and a digest depends on each result but not on their order") {
  const Options options = shared_options(100);
  RoundBook book(options, std::size_t{1} << 20U);
  Random random(3);
  RoundLine& all = book.line_of_all();
  REQUIRE(all.devices.size() == 4);
  CHECK(all.own == 2);
  const auto round = std::make_shared<Round>(4);
  round->parts.emplace_back();
  round->line = &all;
  round->agenda_number = 7;
  REQUIRE(book.append({round}, false));
  std::vector<std::size_t> called;
  while (book.call_next(random, [&](Round&, std::size_t rank) { called.push_back(rank); })) continue;
  std::ranges::sort(called);
  CHECK(called == std::vector<std::size_t>{0, 1});
  CHECK(book.take_called(random) == round);

  const std::array one{std::byte{1}, std::byte{2}};
  const std::array two{std::byte{1}, std::byte{3}};
  RoundBook forwards(options, 1);
  forwards.add_to_digest(*round, 0, 0, one);
  forwards.add_to_digest(*round, 1, 0, two);
  RoundBook backwards(options, 1);
  backwards.add_to_digest(*round, 1, 0, two);
  backwards.add_to_digest(*round, 0, 0, one);
  RoundBook swapped(options, 1);
  swapped.add_to_digest(*round, 0, 0, two);
  swapped.add_to_digest(*round, 1, 0, one);
  CHECK(forwards.digest() == backwards.digest());
  CHECK(forwards.digest() != swapped.digest());
}
