#include <coxswain/tests/collectives/world/leader_bench.hpp>

#include <cstdint>
#include <initializer_list>
#include <vector>

using namespace cox;
using namespace cox::test;
using Catch::Matchers::ContainsSubstring;

namespace {

// Three processes do operation 1; process 1 has completed it.
LeaderBench world_after_one_operation() {
  LeaderBench bench(3);
  for (const std::uint16_t process : these(0, 1, 2)) bench.open(process, 7, group({0, 1, 2}));
  for (const std::uint16_t process : these(0, 1, 2)) bench.ask(process, 7, 1);
  for (const std::uint16_t process : these(0, 1, 2)) bench.next<Release>(process);
  bench.send(1, Progress{.number = 7, .completed = 1});
  return bench;
}

void check_that_others_are_told(LeaderBench& bench) {
  for (const std::uint16_t process : these(0, 2)) {
    const auto broken = bench.next<Broken>(process);
    CHECK(broken.kind == Kind::ProcessGone);
    CHECK(broken.process == 1);
    CHECK(broken.ends == std::vector<SequenceEnd>{{{}, 2}});
    CHECK_THAT(broken.text, ContainsSubstring("process 1 (node1, pid 101) is gone: it has left the world"));
  }
}

void check_that_it_is_gone(LeaderBench& bench, std::initializer_list<std::uint16_t> others) {
  CHECK_FALSE(bench.leader.is_present(1));
  for (const std::uint16_t process : others) CHECK(bench.next<Gone>(process).process == 1);
  CHECK(bench.has_nothing());
}

}  // namespace

TEST_CASE("L16: a process that leaves is gone when the others have completed what it has completed", "[leader]") {
  LeaderBench bench = world_after_one_operation();
  CHECK_FALSE(bench.leader.awaits(1));
  bool has_asked_next = false;
  SECTION("and nothing else was asked") {}
  SECTION("and one of them has asked the next operation") {
    bench.ask(0, 7, 2);
    has_asked_next = true;
  }
  SECTION("and it has closed the communicator") {
    bench.send(1, Close{.number = 7});
    for (const std::uint16_t process : these(0, 1, 2))
      CHECK_THAT(bench.next<Broken>(process).text, ContainsSubstring("has closed the communicator"));
    bench.send(1, Bye{});
    CHECK(bench.leader.is_present(1));
    bench.send(0, Progress{.number = 7, .completed = 1});
    CHECK(bench.has_nothing());
    bench.send(2, Progress{.number = 7, .completed = 1});
    return check_that_it_is_gone(bench, {0, 2});
  }
  bench.send(1, Bye{});
  bench.next<Broken>(1);
  check_that_others_are_told(bench);
  CHECK(bench.leader.is_present(1));
  CHECK(bench.has_nothing());
  CHECK(bench.leader.awaits(0));
  CHECK(bench.leader.awaits(2));
  CHECK_FALSE(bench.leader.awaits(1));
  SECTION("by completing it") {
    bench.send(2, Progress{.number = 7, .completed = 1});
    CHECK(bench.leader.is_present(1));
    CHECK_FALSE(bench.leader.awaits(2));
    bench.send(0, Progress{.number = 7, .completed = has_asked_next ? 2U : 1U});
    check_that_it_is_gone(bench, {0, 2});
  }
  SECTION("or have given it up") {
    bench.send(2, Progress{.number = 7, .completed = 1});
    bench.send(0, Close{.number = 7});
    check_that_it_is_gone(bench, {0, 2});
  }
  SECTION("or the communicator is given up") {
    bench.send(0, Mark{.id = 1, .of = {.devices = group({0, 1, 2})}});
    for (const std::uint16_t process : these(1, 2)) bench.next<Mark>(process);
    check_that_it_is_gone(bench, {0, 2});
  }
  SECTION("or have left, too") {
    bench.send(2, Progress{.number = 7, .completed = 1});
    bench.send(2, Bye{});
    CHECK(bench.leader.is_present(2));
    bench.send(0, Progress{.number = 7, .completed = 1});
    CHECK_FALSE(bench.leader.is_present(1));
    CHECK_FALSE(bench.leader.is_present(2));
  }
  SECTION("or are gone") {
    bench.send(0, Progress{.number = 7, .completed = 1});
    bench.gone(2);
    CHECK(bench.next<Gone>(0).process == 2);
    CHECK(bench.next<Gone>(1).process == 2);
    check_that_it_is_gone(bench, {0});
  }
  SECTION("and meanwhile there is no next instance with it") {
    bench.open(0, 8, group({0, 1, 2}), 2);
    CHECK(bench.next<Broken>(0).epoch == 2);
  }
}

TEST_CASE("A process that leaves before it has completed an operation, or for a reason, is gone at once", "[leader]") {
  LeaderBench bench = world_after_one_operation();
  SECTION("It has not completed the last one") {
    for (const std::uint16_t process : these(0, 1, 2)) bench.ask(process, 7, 2);
    for (const std::uint16_t process : these(0, 1, 2)) bench.next<Release>(process);
    bench.send(1, Bye{});
  }
  SECTION("It has lost the world") { bench.send(1, Bye{.text = "no memory"}); }
  CHECK_FALSE(bench.leader.is_present(1));
  for (const std::uint16_t process : these(0, 2)) {
    bench.next<Broken>(process);
    CHECK(bench.next<Gone>(process).process == 1);
  }
}
