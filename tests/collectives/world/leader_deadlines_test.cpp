#include <coxswain/tests/collectives/world/leader_bench.hpp>

using namespace cox;
using namespace cox::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::uint64_t number = 1;

}  // namespace

TEST_CASE("An overdue operation breaks its instance after a second, with what each missing process does", "[leader]") {
  LeaderBench bench(4);
  const auto devices = group({0, 1, 2, 3});
  for (const std::uint16_t process : these(0, 1, 2)) bench.open(process, number, devices);
  for (const std::uint16_t process : these(0, 1, 2)) bench.ask(process, number, 1);
  bench.open(3, number, devices);
  bench.ask(3, number, 1);
  bench.got.clear();
  bench.pass(milliseconds(500));
  bench.ask(0, number, 2, {}, 5);
  bench.pass(milliseconds(900));
  bench.ask(1, number, 2, {}, 5);
  CHECK(bench.leader.next_deadline() == bench.now + milliseconds(100));
  bench.pass(milliseconds(99));
  CHECK(bench.has_nothing());
  bench.pass(milliseconds(1));
  for (const std::uint16_t process : these(2, 3)) {
    const auto why = bench.next<Why>(process);
    CHECK(why.devices == devices);
    CHECK(why.epoch == 1);
    CHECK(why.direction == Direction{});
    CHECK(why.operation == 2);
    if (process == 3) bench.send(3, Answer{why.question, "host:0 reads a file"});
  }
  CHECK(bench.leader.next_deadline() == bench.now + milliseconds(1000));
  bench.pass(milliseconds(999));
  CHECK(bench.has_nothing());
  bench.pass(milliseconds(1));
  for (const std::uint16_t process : these(0, 1, 2, 3)) {
    const auto broken = bench.next<Broken>(process);
    CHECK(broken.kind == Kind::Timeout);
    CHECK(broken.process == no_process);
    CHECK(broken.ends == std::vector<SequenceEnd>{{{}, 2}});
    CHECK(broken.text ==
          "operation 2 of {p0/host:0, p1/host:0, p2/host:0, p3/host:0}, request 5 was not released within 1000 ms; "
          "process 2 (node2, pid 102) is missing, its last there was operation 1: it did not answer within 1000 ms; "
          "process 3 (node3, pid 103) is missing, its last there was operation 1: host:0 reads a file");
  }
  CHECK(bench.has_nothing());
  CHECK_FALSE(bench.leader.next_deadline());
}

TEST_CASE("When all missing processes have answered, the instance breaks at once", "[leader]") {
  LeaderBench bench(2);
  bench.open(0, number, group({0, 1}));
  bench.ask(0, number, 1);
  bench.pass(milliseconds(1000));
  const auto why = bench.next<Why>(1);  // it has not opened the sequence
  bench.send(0, Answer{why.question, "not asked"});
  bench.send(1, Answer{why.question + 1, "another question"});
  CHECK(bench.has_nothing());
  bench.send(1, Answer{why.question, "idle"});
  CHECK(bench.next<Broken>(0).process == 1);
  CHECK_THAT(bench.next<Broken>(1).text, ContainsSubstring("is missing, and has submitted none there: idle"));
}

TEST_CASE("An operation that is asked after all while its missing processes are asked is released", "[leader]") {
  LeaderBench bench(3);
  for (const std::uint16_t process : these(0, 1, 2)) bench.open(process, number, group({0, 1, 2}));
  bench.ask(0, number, 1);
  bench.ask(0, number, 2);
  bench.pass(milliseconds(1500));
  const auto why = bench.next<Why>(1);
  bench.next<Why>(2);
  bench.send(1, Answer{why.question, "on its way"});
  bench.ask(1, number, 1);
  bench.ask(2, number, 1);
  for (const std::uint16_t process : these(0, 1, 2)) CHECK(bench.next<Release>(process).operation == 1);
  // The next one is overdue, too, and has a question of its own.
  bench.pass(milliseconds(0));
  CHECK(bench.next<Why>(1).operation == 2);
  CHECK(bench.next<Why>(2).operation == 2);
  bench.ask(1, number, 2);
  bench.pass(milliseconds(1000));
  const auto broken = bench.next<Broken>(0);
  CHECK(broken.process == 2);
  CHECK_THAT(broken.text, !ContainsSubstring("process 1"));
}

TEST_CASE("Where an operation waits for another one that is overdue, that one breaks alone", "[leader]") {
  LeaderBench bench(3);
  for (const std::uint16_t process : these(0, 1)) bench.open(process, 1, group({0, 1}), 1, milliseconds(1000));
  for (const std::uint16_t process : these(0, 2)) bench.open(process, 2, group({0, 2}), 1, milliseconds(1000));
  bench.ask(0, 2, 1);
  bench.ask(0, 1, 1, {{2, 1}});
  bench.ask(1, 1, 1);
  bench.pass(milliseconds(1000));
  CHECK(bench.next<Why>(2).operation == 1);
  CHECK(bench.has_nothing());
  bench.pass(milliseconds(1000));
  CHECK(bench.next<Broken>(0).devices == group({0, 2}));
  CHECK(bench.next<Broken>(2).devices == group({0, 2}));
  CHECK(bench.next<Release>(0).number == 1);
  CHECK(bench.next<Release>(1).number == 1);
  CHECK(bench.has_nothing());
}

TEST_CASE("Where it waits for one that is not overdue, it breaks and names the processes missing there", "[leader]") {
  LeaderBench bench(3);
  for (const std::uint16_t process : these(0, 1)) bench.open(process, 1, group({0, 1}), 1, milliseconds(1000));
  for (const std::uint16_t process : these(0, 2)) bench.open(process, 2, group({0, 2}), 1, milliseconds(9000));
  bench.ask(0, 2, 1);
  bench.ask(0, 1, 1, {{2, 1}});
  bench.ask(1, 1, 1);
  bench.pass(milliseconds(1000));
  const auto why = bench.next<Why>(2);
  CHECK(why.devices == group({0, 2}));
  bench.send(2, Answer{why.question, "busy"});
  const auto broken = bench.next<Broken>(1);
  CHECK(broken.devices == group({0, 1}));
  CHECK_THAT(broken.text, ContainsSubstring("it waits for operation 1 of {p0/host:0, p2/host:0}, request 0; "
                                            "process 2 (node2, pid 102) is missing") &&
                              ContainsSubstring(": busy"));
  bench.next<Broken>(0);
  bench.ask(2, 2, 1);
  CHECK(bench.next<Release>(0).number == 2);
}

TEST_CASE("A process that was asked why, and has asked since, is not blamed for another one", "[leader]") {
  LeaderBench bench(3);
  for (const std::uint16_t process : these(0, 1)) bench.open(process, 1, group({0, 1}), 1, milliseconds(1000));
  for (const std::uint16_t process : these(1, 2)) bench.open(process, 2, group({1, 2}), 1, milliseconds(9000));
  bench.ask(0, 1, 1);
  bench.pass(milliseconds(1000));
  const auto why = bench.next<Why>(1);
  bench.ask(1, 2, 1);
  bench.ask(1, 1, 1, {{2, 1}});
  bench.send(1, Answer{why.question, "here it is"});
  CHECK(bench.has_nothing());
  CHECK(bench.leader.next_deadline() <= bench.now);
  bench.pass(milliseconds(0));
  const auto other = bench.next<Why>(2);
  CHECK(other.devices == group({1, 2}));
  bench.send(2, Answer{other.question, "idle"});
  CHECK(bench.next<Broken>(0).process == 2);
}

TEST_CASE("The timeout is that of the first process that asks, also if that of an earlier operation is longer",
          "[leader]") {
  LeaderBench bench(2);
  bench.open(0, number, group({0, 1}), 1, milliseconds(5000));
  bench.open(1, number, group({0, 1}), 1, milliseconds(1000));
  bench.ask(0, number, 1);
  bench.ask(1, number, 1);
  bench.got.clear();
  bench.ask(1, number, 2);
  CHECK(bench.leader.next_deadline() == bench.now + milliseconds(1000));
  bench.pass(milliseconds(1000));
  CHECK(bench.next<Why>(0).operation == 2);
}

TEST_CASE("An operation can wait for the end of a broken sequence, whose operations nobody has asked", "[leader]") {
  LeaderBench bench(3);
  for (const std::uint16_t process : these(0, 1)) bench.open(process, 1, group({0, 1}));
  for (const std::uint16_t process : these(0, 2)) bench.open(process, 2, group({0, 2}));
  bench.send(0, Break{.number = 2, .from = 2});
  bench.next<Broken>(0);
  bench.next<Broken>(2);
  bench.ask(0, 1, 1, {{2, 3}});
  bench.ask(1, 1, 1);
  CHECK(bench.has_nothing());
  SECTION("which comes when they are refused") {
    bench.ask(0, 2, 1);
    bench.send(2, Refuse{.number = 2, .operation = 1});
    bench.next<Refused>(0);
    bench.next<Refused>(2);
    CHECK(bench.next<Release>(1) == Release{1, 1, 1});
  }
  SECTION("or never") {
    bench.pass(milliseconds(1000));
    CHECK(bench.next<Why>(2).operation == 1);
    CHECK(bench.next<Why>(0).operation == 1);
    bench.pass(milliseconds(1000));
    CHECK(bench.next<Broken>(1).devices == group({0, 1}));
  }
}

TEST_CASE("An operation that is held back by a process that completes nothing is overdue, too", "[leader]") {
  LeaderBench bench(2, {.max_ahead = 1});
  for (const std::uint16_t process : these(0, 1)) bench.open(process, number, group({0, 1}));
  for (const std::uint64_t operation : {1U, 2U})
    for (const std::uint16_t process : these(0, 1)) bench.ask(process, number, operation);
  bench.got.clear();
  bench.send(0, Progress{number, 1});
  bench.pass(milliseconds(1000));
  const auto why = bench.next<Why>(1);
  CHECK(why.operation == 1);
  bench.send(1, Answer{why.question, "a kernel runs"});
  const auto broken = bench.next<Broken>(0);
  CHECK(broken.process == 1);
  CHECK(broken.ends == std::vector<SequenceEnd>{{{}, 2}});
  CHECK_THAT(broken.text, ContainsSubstring("process 1 (node1, pid 101) has completed 0 operations there") &&
                              ContainsSubstring(": a kernel runs"));
}

TEST_CASE("The question about an operation ends with its instance", "[leader]") {
  LeaderBench bench(2);
  bench.open(0, number, group({0, 1}));
  bench.ask(0, number, 1);
  bench.pass(milliseconds(1000));
  const auto why = bench.next<Why>(1);
  bench.gone(1);
  bench.next<Broken>(0);
  bench.next<Gone>(0);
  CHECK_FALSE(bench.leader.next_deadline());
  bench.joined(1);
  bench.got.clear();
  bench.send(1, Answer{why.question, "not the process that was asked"});
  bench.pass(milliseconds(5000));
  CHECK(bench.has_nothing());
}

TEST_CASE("Operations that are released in time cost one check for each timeout", "[leader]") {
  LeaderBench bench(2);
  for (const std::uint16_t process : these(0, 1)) bench.open(process, number, group({0, 1}));
  for (std::uint64_t operation = 1; operation < 100; ++operation) {
    bench.ask(0, number, operation);
    bench.now += milliseconds(20);
    bench.ask(1, number, operation);
    bench.send(0, Progress{number, operation});
    bench.send(1, Progress{number, operation});
    if (operation == 40) CHECK(bench.leader.next_deadline() == Leader::Time{} + milliseconds(1000));
  }
  bench.got.clear();
  bench.pass(milliseconds(0));
  CHECK(bench.has_nothing());
  CHECK_FALSE(bench.leader.next_deadline());
}
