#include <coxswain/tests/collectives/world/leader_bench.hpp>

#include <algorithm>

using namespace cox;
using namespace cox::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("L17: an operation is released when all processes have asked it, in one order of turns", "[leader]") {
  LeaderBench bench(3);
  for (std::uint16_t process = 0; process < 3; ++process) bench.open(process, 10U + process, group({0, 1, 2}));
  bench.open(0, 1, group({0, 1}));
  bench.open(1, 2, group({0, 1}));
  bench.ask(0, 10, 1);
  bench.ask(0, 10, 2);
  bench.ask(1, 11, 1);
  bench.ask(1, 2, 1);
  CHECK(bench.has_nothing());
  bench.ask(0, 1, 1);
  CHECK(bench.next<Release>(0) == Release{1, 1, 1});
  CHECK(bench.next<Release>(1) == Release{2, 1, 1});
  bench.ask(2, 12, 1);
  bench.ask(2, 12, 2);
  bench.ask(1, 11, 2);
  CHECK(bench.next<Release>(0) == Release{10, 1, 2});
  CHECK(bench.next<Release>(0) == Release{10, 2, 3});
  CHECK(bench.next<Release>(1) == Release{11, 1, 2});
  CHECK(bench.next<Release>(1) == Release{11, 2, 3});
  CHECK(bench.next<Release>(2) == Release{12, 1, 2});
  CHECK(bench.next<Release>(2) == Release{12, 2, 3});
  CHECK(bench.has_nothing());
}

TEST_CASE("Different requests are refused for all processes, and later operations are not", "[leader]") {
  LeaderBench bench(3);
  for (std::uint16_t process = 0; process < 2; ++process) bench.open(process, 1, group({0, 1, 2}));
  bench.ask(0, 1, 1, {}, 7);
  bench.ask(1, 1, 1, {}, 8);
  for (const std::uint16_t process : these(0, 1)) {
    const auto refused = bench.next<Refused>(process);
    CHECK(refused.operation == 1);
    CHECK(refused.kind == Kind::Mismatch);
    CHECK_THAT(refused.text, ContainsSubstring("operation 1 of {p0/host:0, p1/host:0, p2/host:0}"));
    CHECK_THAT(refused.text, ContainsSubstring("process 0 (node0, pid 100) submitted request 7"));
    CHECK_THAT(refused.text, ContainsSubstring("process 1 (node1, pid 101) request 8"));
  }
  CHECK(bench.has_nothing());
  bench.ask(0, 1, 2);
  bench.ask(1, 1, 2);
  bench.open(2, 5, group({0, 1, 2}));  // learns it when it opens the sequence
  CHECK(bench.next<Refused>(2).number == 5);
  bench.ask(2, 5, 1, {}, 9);
  CHECK(bench.has_nothing());
  bench.ask(2, 5, 2);
  for (const std::uint16_t process : these(0, 1, 2)) CHECK(bench.next<Release>(process).operation == 2);
  CHECK(bench.has_nothing());
}

TEST_CASE("A process refuses an operation for all, also before others have asked it", "[leader]") {
  LeaderBench bench(2);
  bench.open(0, 1, group({0, 1}));
  bench.ask(0, 1, 1);
  bench.ask(0, 1, 2);
  bench.open(1, 1, group({0, 1}));
  bench.ask(1, 1, 1);
  CHECK(bench.next<Release>(0).operation == 1);
  CHECK(bench.next<Release>(1).operation == 1);
  bench.send(1, Refuse{.number = 1, .operation = 2, .kind = Kind::RankFailed, .text = "no memory"});
  bench.send(1, Refuse{.number = 1, .operation = 3, .kind = Kind::RankFailed, .text = "no memory"});
  for (const std::uint16_t process : these(0, 1))
    for (const std::uint64_t operation : {2U, 3U})
      CHECK(bench.next<Refused>(process) ==
            Refused{1, operation, Kind::RankFailed, "process 1 (node1, pid 101): no memory"});
  bench.send(0,
             Refuse{.number = 1, .operation = 3, .kind = Kind::WouldDeadlock, .text = "second"});  // the first counts
  bench.ask(0, 1, 4);
  bench.ask(1, 1, 4);
  CHECK(bench.next<Release>(0).operation == 4);
  CHECK(bench.next<Release>(1).operation == 4);
  CHECK(bench.has_nothing());
}

TEST_CASE("An operation is released after all that it awaits, and after refused ones at once", "[leader]") {
  LeaderBench bench(3);
  for (std::uint16_t process = 0; process < 2; ++process) bench.open(process, 1, group({0, 1}));
  for (std::uint16_t process = 0; process < 3; ++process) bench.open(process, 2, group({0, 1, 2}));
  bench.open(0, 3, group({0, 2}));
  bench.open(2, 3, group({0, 2}));
  bench.ask(0, 3, 1);
  bench.ask(0, 2, 1);
  bench.ask(0, 2, 2, {{3, 1}});
  bench.ask(0, 1, 1, {{2, 2}, {3, 1}, {77, 5}});  // 77: closed long ago
  bench.ask(1, 2, 1);
  bench.ask(1, 2, 2);
  bench.ask(1, 1, 1);
  CHECK(bench.has_nothing());
  bench.ask(2, 2, 1);
  for (const std::uint16_t process : these(0, 1, 2)) CHECK(bench.next<Release>(process) == Release{2, 1, 1});
  bench.ask(2, 2, 2);
  CHECK(bench.has_nothing());  // operation 2 waits for the other one of process 2
  SECTION("which is released") {
    bench.ask(2, 3, 1);
    CHECK(bench.next<Release>(0) == Release{3, 1, 2});
    CHECK(bench.next<Release>(2) == Release{3, 1, 2});
  }
  SECTION("which is refused") {
    bench.send(2, Refuse{.number = 3, .operation = 1});
    bench.next<Refused>(0);
    bench.next<Refused>(2);
  }
  SECTION("which is broken") {
    bench.send(2, Break{.number = 3, .from = 1});
    bench.next<Broken>(0);
    bench.next<Broken>(2);
  }
  const std::uint64_t turn = bench.next<Release>(1).turn;
  CHECK(bench.next<Release>(0) == Release{2, 2, turn});
  CHECK(bench.next<Release>(2) == Release{2, 2, turn});
  CHECK(bench.next<Release>(0) == Release{1, 1, turn + 1});
  CHECK(bench.next<Release>(1) == Release{1, 1, turn + 1});
  CHECK(bench.has_nothing());
}

TEST_CASE("A refused operation is awaited until the earlier ones of its sequence are resolved", "[leader]") {
  LeaderBench bench(2);
  for (const std::uint16_t process : these(0, 1)) bench.open(process, 1, group({0, 1}));
  const std::vector<DeviceId> other{{0, 0, 1}, {0, 1, 2}};
  for (const std::uint16_t process : these(0, 1)) bench.open(process, 2, other);
  bench.ask(0, 1, 1);
  bench.send(0, Refuse{.number = 1, .operation = 2});
  bench.next<Refused>(0);
  bench.next<Refused>(1);
  bench.ask(0, 2, 1, {{1, 2}});
  bench.ask(1, 2, 1);
  CHECK(bench.has_nothing());
  bench.ask(1, 1, 1);
  CHECK(bench.next<Release>(0) == Release{1, 1, 1});
  CHECK(bench.next<Release>(0) == Release{2, 1, 2});
}

TEST_CASE("The ask that closes a cycle is refused with the whole ring, and other operations proceed", "[leader]") {
  LeaderBench bench(3);
  const std::vector<std::vector<DeviceId>> groups{group({0, 1}), group({1, 2}), group({0, 2})};
  bench.open(0, 1, groups[0]);
  bench.open(1, 1, groups[0]);
  bench.open(1, 2, groups[1]);
  bench.open(2, 2, groups[1]);
  bench.open(0, 3, groups[2]);
  bench.open(2, 3, groups[2]);
  bench.ask(0, 1, 1, {}, 1);
  bench.ask(0, 3, 1, {{1, 1}}, 3);
  bench.ask(1, 2, 1, {}, 2);
  bench.ask(1, 1, 1, {{2, 1}}, 1);
  bench.ask(2, 3, 1, {}, 3);
  CHECK(bench.has_nothing());
  bench.ask(2, 2, 1, {{3, 1}}, 2);  // 2 waits for 3, which waits for 1, which waits for 2
  for (const std::uint16_t process : these(1, 2)) {
    const auto refused = bench.next<Refused>(process);
    CHECK(refused.number == 2);
    CHECK(refused.kind == Kind::WouldDeadlock);
    CHECK_THAT(
        refused.text,
        ContainsSubstring("operation 1 of {p1/host:0, p2/host:0}, request 2 waits, in process 2") &&
            ContainsSubstring("for operation 1 of {p0/host:0, p2/host:0}, request 3, which waits, in process 0") &&
            ContainsSubstring("for operation 1 of {p0/host:0, p1/host:0}, request 1, which waits, in process 1") &&
            ContainsSubstring("for the first operation"));
  }
  CHECK(bench.next<Release>(0) == Release{1, 1, 1});
  CHECK(bench.next<Release>(0) == Release{3, 1, 2});
  CHECK(bench.next<Release>(1) == Release{1, 1, 1});
  CHECK(bench.next<Release>(2) == Release{3, 1, 2});
  CHECK(bench.has_nothing());
}

TEST_CASE("A cycle through an earlier operation of a sequence is found, an order in time is none", "[leader]") {
  LeaderBench bench(2);
  const std::vector<DeviceId> other{{0, 0, 1}, {0, 1, 2}};
  for (const std::uint16_t process : these(0, 1)) {
    bench.open(process, 1, group({0, 1}));
    bench.open(process, 2, other);
  }
  bench.ask(0, 1, 1);
  bench.ask(0, 1, 2);
  bench.ask(0, 2, 1, {{1, 2}});  // waits for both
  bench.ask(1, 2, 1);
  bench.ask(1, 1, 1, {{2, 1}});
  const auto refused = bench.next<Refused>(0);
  CHECK(refused.operation == 1);
  CHECK(refused.kind == Kind::WouldDeadlock);
  CHECK_THAT(refused.text, ContainsSubstring("which comes after the first operation"));
  CHECK(bench.next<Refused>(1).operation == 1);
  bench.ask(1, 1, 2);
  CHECK(bench.next<Release>(0) == Release{1, 2, 1});
  CHECK(bench.next<Release>(0) == Release{2, 1, 2});
  // Each process waits for the other sequence's last operation.
  for (std::uint64_t operation = 3; operation < 8; ++operation)
    for (const std::uint16_t process : these(1, 0)) {
      bench.ask(process, 1, operation, {{2, operation - 2}});
      bench.ask(process, 2, operation - 1, {{1, operation}});
    }
  CHECK(bench.got[0].size() == 10);
  for (const Message& message : bench.got[0]) CHECK(std::holds_alternative<Release>(message));
}

TEST_CASE("A cycle through an operation that comes before the awaited one is found", "[leader]") {
  LeaderBench bench(2);
  const std::vector<DeviceId> other{{0, 0, 1}, {0, 1, 2}};
  for (const std::uint16_t process : these(0, 1)) {
    bench.open(process, 1, group({0, 1}));
    bench.open(process, 2, other);
  }
  bench.ask(0, 1, 1);
  bench.ask(0, 2, 1, {{1, 1}});
  bench.ask(0, 2, 2);
  bench.ask(1, 2, 1);
  bench.ask(1, 2, 2);
  CHECK(bench.has_nothing());
  bench.ask(1, 1, 1, {{2, 2}});
  const auto refused = bench.next<Refused>(1);
  CHECK(refused.kind == Kind::WouldDeadlock);
  CHECK_THAT(refused.text, ContainsSubstring("for operation 2 of {p0/host:0, p1/host:1}, request 0, which comes after "
                                             "operation 1 of {p0/host:0, p1/host:1}"));
  CHECK(bench.next<Release>(1) == Release{2, 1, 1});
  CHECK(bench.next<Release>(1) == Release{2, 2, 2});
}

TEST_CASE("What a refused operation was to wait for closes no cycle", "[leader]") {
  LeaderBench bench(3);
  for (const std::uint16_t process : these(0, 1, 2)) bench.open(process, 1, group({0, 1, 2}));
  for (const std::uint16_t process : these(0, 1)) bench.open(process, 2, group({0, 1}));
  bench.ask(0, 1, 1);
  bench.ask(0, 2, 1);
  bench.ask(0, 1, 2, {{2, 1}});
  bench.ask(1, 1, 1);
  bench.send(1, Refuse{.number = 1, .operation = 2});
  for (const std::uint16_t process : these(0, 1, 2)) CHECK(bench.next<Refused>(process).operation == 2);
  bench.ask(1, 2, 1, {{1, 2}});
  CHECK(bench.has_nothing());
  bench.ask(2, 1, 1);
  CHECK(bench.next<Release>(0) == Release{1, 1, 1});
  CHECK(bench.next<Release>(0) == Release{2, 1, 2});
}

TEST_CASE("L17: no process is more than max_ahead released operations behind, members only", "[leader]") {
  LeaderBench bench(3, {.max_ahead = 2});
  for (std::uint16_t process = 0; process < 3; ++process) bench.open(process, 1, group({0, 1, 2}));
  for (std::uint16_t process = 0; process < 2; ++process) bench.open(process, 2, group({0, 1}));
  for (std::uint64_t operation = 1; operation < 7; ++operation)
    for (std::uint16_t process = 0; process < 3; ++process) {
      if (operation == 2 && process == 1)
        bench.send(process, Refuse{.number = 1, .operation = operation});  // does not count as one behind
      else
        bench.ask(process, 1, operation);
    }
  const auto released = [&](std::uint16_t process) {
    std::vector<std::uint64_t> operations;
    for (const Message& message : std::exchange(bench.got[process], {}))
      if (const auto* const release = std::get_if<Release>(&message)) operations.push_back(release->operation);
    return operations;
  };
  CHECK(released(0) == std::vector<std::uint64_t>{1, 3});
  bench.send(0, Progress{1, 3});
  bench.send(1, Progress{1, 3});
  CHECK(released(0).empty());
  bench.send(2, Progress{1, 1});
  CHECK(released(0) == std::vector<std::uint64_t>{4});
  bench.send(2, Progress{1, 2});
  CHECK(released(0).empty());
  bench.send(2, Progress{1, 3});
  CHECK(released(0) == std::vector<std::uint64_t>{5});
  bench.send(0, Progress{1, 5});
  bench.send(1, Progress{1, 5});
  bench.send(2, Progress{1, 5});
  CHECK(released(0) == std::vector<std::uint64_t>{6});
  for (const std::uint16_t process : these(0, 1)) bench.ask(process, 2, 1);
  CHECK(released(1).size() == 6);
}

TEST_CASE("A break ends an instance from the given operation on, and other sequences where they are", "[leader]") {
  LeaderBench bench(3);
  const auto devices = group({0, 1, 2});
  bench.open(0, 1, devices);
  bench.open(1, 1, devices);
  bench.open(0, 2, devices, 1, milliseconds(1000), {0, 1});
  bench.open(1, 2, devices, 1, milliseconds(1000), {0, 1});
  bench.ask(0, 2, 1);
  bench.ask(1, 2, 1);
  CHECK(bench.next<Release>(0) == Release{2, 1, 1});
  CHECK(bench.next<Release>(1) == Release{2, 1, 1});
  bench.ask(0, 2, 2);
  bench.send(1, Break{.number = 1, .from = 3, .kind = Kind::Aborted, .text = "shut down"});
  for (const std::uint16_t process : these(0, 1, 2)) {
    const auto broken = bench.next<Broken>(process);
    CHECK(broken.devices == devices);
    CHECK(broken.epoch == 1);
    CHECK(broken.kind == Kind::Aborted);
    CHECK(broken.process == 1);
    CHECK(broken.text == "process 1 (node1, pid 101): shut down");
    // Process 2 has no part in the transfers; it has not opened the sequence of all ranks.
    if (process == 2)
      CHECK(broken.ends == std::vector<SequenceEnd>{{{}, 3}});
    else
      CHECK(broken.ends == std::vector<SequenceEnd>{{{0, 1}, 2}, {{}, 3}});
  }
  bench.ask(1, 2, 2);  // of no use any more
  CHECK(bench.has_nothing());
  // Operations before the end are still released.
  for (std::uint64_t operation = 1; operation < 5; ++operation) bench.ask(0, 1, operation);
  bench.ask(1, 1, 1);
  bench.open(2, 9, devices);
  bench.ask(2, 9, 1);
  for (const std::uint16_t process : these(0, 1, 2)) CHECK(bench.next<Release>(process).operation == 1);
  // A second break moves the end.
  bench.send(0, Break{.number = 1, .from = 1, .kind = Kind::RankFailed, .text = "second"});
  for (const std::uint16_t process : these(0, 1, 2)) {
    const auto broken = bench.next<Broken>(process);
    CHECK(broken.kind == Kind::RankFailed);
    CHECK(broken.ends.back() == SequenceEnd{{}, 2});
  }
  bench.ask(1, 1, 2);
  bench.send(1, Break{.number = 1, .from = 1});
  bench.open(2, 10, devices, 1, milliseconds(1000), {1, 2});  // of the broken instance: nothing to say
  bench.ask(2, 10, 1);
  CHECK(bench.has_nothing());
  bench.open(2, 11, devices, 2);
  bench.open(0, 11, devices, 2);
  bench.open(1, 11, devices, 2);
  for (const std::uint16_t process : these(0, 1, 2)) bench.ask(process, 11, 1);
  for (const std::uint16_t process : these(0, 1, 2)) CHECK(bench.next<Release>(process) == Release{11, 1, 3});
}

TEST_CASE("A process that learns of a break before it opens the sequence gets its refusals with it", "[leader]") {
  LeaderBench bench(2);
  bench.open(0, 1, group({0, 1}));
  bench.send(0, Refuse{.number = 1, .operation = 1});
  bench.next<Refused>(0);
  bench.send(0, Break{.number = 1, .from = 3});
  CHECK(bench.next<Broken>(0).ends == std::vector<SequenceEnd>{{{}, 3}});
  CHECK(bench.next<Broken>(1).ends == std::vector<SequenceEnd>{{{}, 3}});
  SECTION("as refusals, while the instance can go on") {
    bench.open(1, 1, group({0, 1}));
    CHECK(bench.next<Refused>(1).operation == 1);
  }
  SECTION("as broken ones, when it cannot") {
    bench.send(0, Close{1});
    CHECK(bench.next<Broken>(0).ends.empty());
    CHECK(bench.next<Broken>(1).ends.empty());
    bench.open(1, 1, group({0, 1}));
    bench.ask(1, 1, 1);
    CHECK(bench.has_nothing());
  }
}

TEST_CASE("Closing a sequence ends its instance, and its number means nothing any more", "[leader]") {
  LeaderBench bench(2);
  for (const std::uint16_t process : these(0, 1)) bench.open(process, 1, group({0, 1}));
  bench.ask(0, 1, 1);
  bench.ask(1, 1, 1);
  for (const std::uint16_t process : these(0, 1)) bench.next<Release>(process);
  bench.send(0, Close{1});
  for (const std::uint16_t process : these(0, 1)) {
    const auto broken = bench.next<Broken>(process);
    CHECK(broken.ends == std::vector<SequenceEnd>{{{}, 2}});
    CHECK_THAT(broken.text, ContainsSubstring("process 0 (node0, pid 100) has closed"));
  }
  CHECK_THAT(bench.fault(0, Ask{.number = 1, .operation = 2}), ContainsSubstring("has not opened communicator 1"));
  bench.ask(1, 1, 2);
  bench.send(1, Close{1});
  CHECK(bench.has_nothing());
}

TEST_CASE("L16: when a process is gone all instances with it break, for all members, and others do not", "[leader]") {
  LeaderBench bench(4);
  for (std::uint16_t process = 0; process < 2; ++process) bench.open(process, 1, group({0, 1, 2}));
  for (const std::uint16_t process : these(0, 3)) bench.open(process, 2, group({0, 3}));
  bench.ask(0, 2, 1);
  bench.gone(1, Kind::ProcessSilent, "no word for 30 s");
  for (const std::uint16_t process : these(0, 2)) {  // process 2 has not opened it
    const auto broken = bench.next<Broken>(process);
    CHECK(broken.devices == group({0, 1, 2}));
    CHECK(broken.epoch == 1);
    CHECK(broken.kind == Kind::ProcessSilent);
    CHECK(broken.process == 1);
    CHECK(broken.ends.empty());
  }
  for (const std::uint16_t process : these(0, 2, 3)) {
    const auto gone = bench.next<Gone>(process);
    CHECK(gone.process == 1);
    CHECK(gone.text == "process 1 (node1, pid 101) is gone: no word for 30 s");
  }
  CHECK(bench.has_nothing());
  bench.gone(1);
  bench.send(1, Ask{.number = 1, .operation = 7});  // too late
  bench.ask(3, 2, 1);
  CHECK(bench.next<Release>(0).number == 2);
  CHECK(bench.next<Release>(3).number == 2);
  CHECK(bench.has_nothing());

  // Process 2 did not know when it opened the old epoch.
  bench.open(2, 1, group({0, 1, 2}));
  bench.ask(2, 1, 1);
  CHECK(bench.has_nothing());
  // Without a successor there is no next instance.
  bench.open(0, 3, group({0, 1, 2}), 2);
  for (const std::uint16_t process : these(0, 2)) {
    const auto broken = bench.next<Broken>(process);
    CHECK(broken.epoch == 2);
    CHECK(broken.kind == Kind::ProcessGone);
    CHECK(broken.process == 1);
    CHECK_THAT(broken.text, ContainsSubstring("process 1 (node1, pid 101) is gone"));
  }
  CHECK(bench.leader.welcome().processes[1].host.empty());
  bench.joined(1);
  CHECK(bench.leader.welcome().processes[1].host == "spare");
  const auto learned = bench.next<Broken>(1);
  CHECK(learned.devices == group({0, 1, 2}));
  CHECK(learned.epoch == 2);
  CHECK(learned.process == 1);
  for (const std::uint16_t process : these(0, 1, 2, 3)) CHECK(bench.next<Joined>(process).facts.restart == 1);
  CHECK(bench.has_nothing());
  for (const std::uint16_t process : these(0, 1, 2)) bench.open(process, 4, group({0, 1, 2}), 3);
  for (const std::uint16_t process : these(0, 1, 2)) bench.ask(process, 4, 1);
  for (const std::uint16_t process : these(0, 1, 2)) CHECK(bench.next<Release>(process) == Release{4, 1, 2});
  bench.send(2, Bye{"done"});
  for (const std::uint16_t process : these(0, 1)) {
    CHECK(bench.next<Broken>(process).ends == std::vector<SequenceEnd>{{{}, 2}});
    CHECK_THAT(bench.next<Gone>(process).text, ContainsSubstring("left the world: done"));
  }
  CHECK_FALSE(bench.leader.is_present(2));
}

TEST_CASE("A transfer is between two processes, whatever the others of the group do", "[leader]") {
  LeaderBench bench(3);
  const auto devices = group({0, 1, 2});
  bench.open(0, 1, devices, 1, milliseconds(1000), {0, 2});
  bench.open(2, 1, devices, 1, milliseconds(1000), {0, 2});
  bench.open(0, 2, devices, 1, milliseconds(1000), {2, 0});
  bench.ask(0, 1, 1, {}, 4);
  bench.ask(2, 1, 1, {}, 5);
  CHECK_THAT(bench.next<Refused>(0).text, ContainsSubstring("transfer 1 from p0/host:0 to p2/host:0"));
  bench.next<Refused>(2);
  bench.ask(0, 1, 2);
  bench.ask(2, 1, 2);
  CHECK(bench.next<Release>(0) == Release{1, 2, 1});
  CHECK(bench.next<Release>(2) == Release{1, 2, 1});
  bench.ask(0, 2, 1);
  CHECK(bench.has_nothing());  // the other direction is another sequence
  bench.gone(1);
  for (const std::uint16_t process : these(0, 2)) {
    CHECK(bench.next<Broken>(process).ends == std::vector<SequenceEnd>{{{0, 2}, 3}});
    bench.next<Gone>(process);
  }
}

TEST_CASE("Messages that are not in order are faults of their process", "[leader]") {
  LeaderBench bench(3, {.max_asked = 2, .max_groups = 2});
  bench.open(0, 1, group({0, 1}));
  const auto open_fault = [&](std::vector<DeviceId> devices, std::uint64_t epoch = 1, Direction direction = {}) {
    return bench.fault(0, Open{.number = 5, .devices = std::move(devices), .epoch = epoch, .direction = direction});
  };
  CHECK_THAT(bench.fault(0, Open{.number = 1, .devices = group({0, 2})}), ContainsSubstring("communicator 1 twice"));
  CHECK_THAT(open_fault(group({0, 1})), ContainsSubstring("open already, as 1"));
  CHECK_THAT(open_fault(group({0})), ContainsSubstring("1 devices"));
  CHECK_THAT(open_fault(group({1, 0})), ContainsSubstring("not sorted"));
  CHECK_THAT(open_fault(group({0, 0, 1})), ContainsSubstring("not sorted"));
  CHECK_THAT(open_fault(group({0, 3})), ContainsSubstring("p3/host:0, which is no device of the world"));
  CHECK_THAT(open_fault({{0, 0, 0}, {0, 0, 1}}), ContainsSubstring("host:0, which is no device of the world"));
  CHECK_THAT(open_fault(group({1, 2})), ContainsSubstring("without a device of the process"));
  CHECK_THAT(open_fault({{0, 0, 1}, {0, 1, 1}}), ContainsSubstring("of one process"));
  CHECK_THAT(open_fault(group({0, 1}), 2), ContainsSubstring("epoch 2"));
  CHECK_THAT(open_fault(group({0, 1}), 0), ContainsSubstring("epoch of 0"));
  CHECK_THAT(open_fault(group({0, 1, 2}), 1, {1, 2}), ContainsSubstring("processes 1 and 2"));
  CHECK_THAT(open_fault({{0, 0, 1}, {0, 1, 1}, {0, 0, 2}}, 1, {0, 1}), ContainsSubstring("processes 0 and 0"));
  CHECK_THAT(open_fault(group({0, 1}), 1, {0, 2}), ContainsSubstring("no ranks 0 and 2"));
  bench.open(0, 2, group({0, 2}));
  CHECK_THAT(open_fault(group({0, 1, 2})), ContainsSubstring("more than 2 groups"));

  CHECK_THAT(bench.fault(0, Ask{.number = 9, .operation = 1}), ContainsSubstring("not opened communicator 9"));
  CHECK_THAT(bench.fault(0, Refuse{.number = 9, .operation = 1}), ContainsSubstring("not opened communicator 9"));
  CHECK_THAT(bench.fault(0, Break{.number = 9, .from = 1}), ContainsSubstring("not opened communicator 9"));
  CHECK_THAT(bench.fault(0, Progress{.number = 9}), ContainsSubstring("not opened communicator 9"));
  CHECK_THAT(bench.fault(0, Close{9}), ContainsSubstring("not opened communicator 9"));
  CHECK_THAT(bench.fault(0, Ask{.number = 1, .operation = 2}),
             ContainsSubstring("operation 2 of communicator 1 instead"));
  bench.ask(0, 1, 1);
  CHECK_THAT(bench.fault(0, Ask{.number = 1, .operation = 1}), ContainsSubstring("instead of 2"));
  CHECK_THAT(bench.fault(0, Refuse{.number = 1, .operation = 1}), ContainsSubstring("instead of 2"));
  bench.ask(0, 1, 2, {{1, 1}});
  CHECK_THAT(bench.fault(0, Ask{.number = 1, .operation = 3}), ContainsSubstring("more than 2 operations"));
  CHECK_THAT(bench.fault(0, Ask{.number = 2, .operation = 1, .awaited = {{1, 3}}}),
             ContainsSubstring("awaits operation 3 of communicator 1"));
  CHECK_THAT(bench.fault(0, Progress{.number = 1, .completed = 1}), ContainsSubstring("completed 1 operations"));
  CHECK_THAT(bench.fault(0, Release{}), ContainsSubstring("type 13"));
  CHECK_THAT(bench.fault(0, Hello{}), ContainsSubstring("type 1,"));
  CHECK(bench.fault(0, Heartbeat{}).empty());
  CHECK(bench.fault(0, Answer{.question = 7}).empty());  // of a question that is closed
  CHECK(bench.has_nothing());
}

TEST_CASE("A process has at most so many sequences open, and closing one makes room", "[leader]") {
  LeaderBench bench(2);
  std::vector<DeviceId> devices{{0, 0, 1}, {0, 0, 2}};
  for (std::uint16_t i = 0; i < max_sequences; ++i) {
    devices[1].index = i;
    bench.open(0, i, devices);
  }
  devices[1].index = max_sequences;
  CHECK_THAT(bench.fault(0, Open{.number = max_sequences, .devices = devices}), ContainsSubstring("more than 4096"));
  bench.send(0, Close{5});
  bench.open(0, max_sequences, devices);
}

TEST_CASE("A process that misses too many refused operations breaks the instance", "[leader]") {
  LeaderBench bench(3, {.max_asked = 4});
  for (const std::uint16_t process : these(0, 1)) bench.open(process, 1, group({0, 1, 2}));
  for (std::uint64_t operation = 1; operation < 9; ++operation) {
    bench.send(0, Refuse{.number = 1, .operation = operation});
    bench.ask(1, 1, operation);
  }
  bench.got.clear();
  bench.ask(1, 1, 9);
  for (const std::uint16_t process : these(0, 1, 2)) {
    const auto broken = bench.next<Broken>(process);
    CHECK(broken.process == 2);
    CHECK(broken.ends.empty());
    CHECK_THAT(broken.text, ContainsSubstring("process 2 (node2, pid 102) is 8 operations behind"));
  }
}

TEST_CASE("What the leader reports: who is there, what is in flight, and who holds back which operation", "[leader]") {
  LeaderBench bench(3, {.max_ahead = 2});
  const auto pair = group({0, 1});
  const auto all = group({0, 1, 2});
  for (const std::uint16_t process : these(0, 1)) bench.open(process, 1, pair);
  for (const std::uint16_t process : these(0, 1, 2)) bench.open(process, 2, all);
  for (const std::uint16_t process : these(0, 1)) bench.ask(process, 1, 1);
  bench.ask(0, 2, 1);
  bench.ask(0, 1, 2, {{2, 1}});
  bench.ask(1, 1, 2);
  LeaderReport report = bench.leader.report();
  CHECK(report.released == 1);
  REQUIRE(report.processes.size() == 3);
  CHECK(report.processes[0].facts.host == "node0");
  CHECK(report.processes[0].in_flight == 1);
  CHECK(report.processes[2].in_flight == 0);
  for (const LeaderReport::Process& each : report.processes) CHECK(each.is_awaited);
  REQUIRE(report.operations.size() == 2);
  for (const auto& operation : report.operations) {
    CHECK(operation.missing == std::vector<std::uint16_t>{1, 2});
    CHECK_FALSE(operation.is_behind);
    const bool is_held = operation.name.starts_with("operation 2 of {p0/host:0, p1/host:0}");
    CHECK((operation.waits_for.empty() ? !is_held : is_held));
    if (is_held) CHECK_THAT(operation.waits_for, ContainsSubstring("operation 1 of {p0/host:0, p1/host:0, p2/host:0}"));
  }
  // A process that has not completed what was released before.
  bench.ask(1, 2, 1);
  bench.ask(2, 2, 1);
  for (const std::uint16_t process : these(0, 1)) bench.ask(process, 1, 3);
  bench.send(0, Progress{.number = 1, .completed = 2});
  report = bench.leader.report();
  CHECK(report.released == 3);
  CHECK(report.processes[0].in_flight == 1);
  CHECK(report.processes[1].in_flight == 3);
  REQUIRE(report.operations.size() == 1);
  CHECK(report.operations[0].missing == std::vector<std::uint16_t>{1});
  CHECK(report.operations[0].is_behind);
  bench.gone(1);
  CHECK_FALSE(bench.leader.report().processes[1].is_present);
}
