// The creation of NCCL's communicators, and the messages that the leader passes on.
#include <coxswain/tests/collectives/world/leader_bench.hpp>

using namespace cox;
using namespace cox::test;
using Catch::Matchers::ContainsSubstring;

namespace {

OperationOfAll operation_of(const std::vector<DeviceId>& devices, std::uint64_t operation, Direction direction = {}) {
  return {.devices = devices, .epoch = 1, .direction = direction, .operation = operation};
}

}  // namespace

TEST_CASE("The creation of a communicator is released when all its processes are ready, in its turn", "[leader]") {
  LeaderBench bench(3);
  const auto all = group({0, 1, 2});
  for (const std::uint16_t process : these(0, 1, 2)) {
    bench.open(process, 1, all);
    bench.open(process, 2, all, 1, milliseconds(1000), creation_direction);
  }
  bench.ask(0, 2, 1);
  bench.ask(2, 2, 1);
  bench.ask(0, 1, 1);
  CHECK(bench.has_nothing());
  bench.ask(1, 2, 1);
  for (const std::uint16_t process : these(0, 1, 2)) CHECK(bench.next<Release>(process) == Release{2, 1, 1});
  bench.ask(1, 1, 1);
  bench.ask(2, 1, 1);
  for (const std::uint16_t process : these(0, 1, 2)) CHECK(bench.next<Release>(process) == Release{1, 1, 2});
  CHECK(bench.has_nothing());
}

TEST_CASE("A process that is not ready in time is named, and the others need not wait for it", "[leader]") {
  LeaderBench bench(2);
  const auto both = group({0, 1});
  bench.open(0, 1, both);
  bench.open(0, 2, both, 1, milliseconds(1000), creation_direction);
  bench.ask(0, 2, 1);
  bench.pass(milliseconds(1000));
  const auto why = bench.next<Why>(1);
  CHECK(why.direction == creation_direction);
  bench.send(1, Answer{.question = why.question, .text = "it computes"});
  const auto broken = bench.next<Broken>(0);
  CHECK(broken.kind == Kind::Timeout);
  CHECK_THAT(broken.text, ContainsSubstring("the creation of {p0/host:0, p1/host:0}"));
  CHECK_THAT(broken.text, ContainsSubstring("process 1 (node1, pid 101)") && ContainsSubstring("it computes"));
}

TEST_CASE("What a process shares is passed on to the other processes of the group", "[leader]") {
  LeaderBench bench(4);
  for (const std::uint16_t process : these(0, 1, 2)) bench.open(process, 1, group({0, 1, 2}));
  const Share share{.of = operation_of(group({0, 1, 2}), 1, creation_direction), .bytes = {std::byte{5}}};
  bench.send(0, share);
  CHECK(bench.next<Share>(1) == share);
  CHECK(bench.next<Share>(2) == share);
  CHECK(bench.has_nothing());
  CHECK(bench.fault(3, share) == "it has no device of the group");
  CHECK_THAT(bench.fault(3, Share{.of = operation_of(group({0, 3}), 1), .bytes = {}}),
             ContainsSubstring("that no process has opened"));
}

TEST_CASE("L14: a mark is noted when all other processes of the group have noted it", "[leader]") {
  LeaderBench bench(4);
  const auto devices = group({0, 1, 2});
  for (const std::uint16_t process : these(0, 1, 2)) bench.open(process, 1, devices);
  bench.send(1, Mark{.id = 40, .of = operation_of(devices, 3), .kind = Kind::RankFailed, .text = "no data"});
  const auto to_0 = bench.next<Mark>(0);
  const auto to_2 = bench.next<Mark>(2);
  CHECK(to_0.of == operation_of(devices, 3));
  CHECK(to_0.kind == Kind::RankFailed);
  CHECK(to_0.text == "process 1 (node1, pid 101): no data");
  CHECK(bench.has_nothing());
  CHECK(bench.leader.awaits(0));
  CHECK_FALSE(bench.leader.awaits(1));
  bench.send(0, MarkNoted{to_0.id});
  CHECK_FALSE(bench.leader.awaits(0));
  CHECK(bench.has_nothing());
  CHECK_THAT(bench.fault(2, MarkNoted{99}), ContainsSubstring("which does not exist"));
  SECTION("by the last one") {
    bench.send(2, MarkNoted{to_2.id});
    CHECK(bench.next<MarkNoted>(1) == MarkNoted{40});
    bench.send(2, MarkNoted{to_2.id});  // nobody waits for it any more
  }
  SECTION("the last one is gone") {
    bench.gone(2);
    bench.got[0].clear();
    CHECK(bench.next<Broken>(1).kind == Kind::ProcessGone);
    CHECK(bench.next<Gone>(1).process == 2);
    CHECK(bench.next<MarkNoted>(1) == MarkNoted{40});
  }
  SECTION("its sender is gone") {
    bench.gone(1);
    bench.got[0].clear();
    bench.got[2].clear();
    CHECK_FALSE(bench.leader.awaits(2));
    bench.send(2, MarkNoted{to_2.id});
  }
  bench.got[3].clear();  // which is told who is gone
  CHECK(bench.has_nothing());
}

TEST_CASE("A mark that no other process is there to note is noted at once", "[leader]") {
  LeaderBench bench(2);
  const auto devices = group({0, 1});
  bench.open(0, 1, devices);
  bench.gone(1);
  bench.got.clear();
  bench.send(0, Mark{.id = 7, .of = operation_of(devices, 0), .kind = Kind::ProcessGone, .text = ""});
  CHECK(bench.next<MarkNoted>(0) == MarkNoted{7});
}

TEST_CASE("A check of a link is passed on to the other process, if that is present", "[leader]") {
  LeaderBench bench(3);
  LinkCheck check{.kind = LinkCheck::Kind::Sent, .process = 2, .restart = 4, .bytes = 1000};
  bench.send(0, check);
  check.process = 0;
  CHECK(bench.next<LinkCheck>(2) == check);
  CHECK(bench.has_nothing());
  CHECK_THAT(bench.fault(0, check), ContainsSubstring("it checks its link to process 0"));
  check.process = 3;
  CHECK_THAT(bench.fault(1, check), ContainsSubstring("it checks its link to process 3"));
  bench.gone(2);
  static_cast<void>(bench.next<Gone>(0));
  static_cast<void>(bench.next<Gone>(1));
  check.process = 2;
  bench.send(1, check);
  CHECK(bench.has_nothing());
}
