#include <coxswain/tests/collectives/world/raw_process.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/log_lines.hpp>
#include <coxswain/tests/support/settings_scope.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>

#include <coxswain/collectives/discovery/rendezvous.hpp>
#include <coxswain/collectives/sequencer/sequencer.hpp>
#include <coxswain/collectives/world/world_error.hpp>
#include <coxswain/collectives/world/world_leader.hpp>
#include <coxswain/collectives/world/world_session.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

using namespace cox;
using namespace std::chrono_literals;
using namespace cox::test;
using Catch::Matchers::ContainsSubstring;
using cox::detail::world::WorldSession;

namespace {

/// A process of a world whose processes are threads of the test.
struct Member {
  Sequencer sequencer{{}};
  WorldSession session;
  Member(const TemporaryFolder& folder, std::uint16_t process, std::uint16_t processes,
         std::chrono::nanoseconds timeout = 60s, const std::string& run = "test")
      : session({.place = {.process = process,
                           .processes = processes,
                           .local_process = process,
                           .local_processes = processes,
                           .run = run,
                           .host = "here",
                           .rendezvous = {.kind = Rendezvous::Kind::Folder, .folder = folder.path().string()},
                           .timeout = timeout},
                 .devices = {{0, process}}},
                sequencer) {}
  /// A process of the world that `leader` leads.
  Member(const WorldLeader& leader, std::uint16_t process, std::uint32_t restart, std::uint16_t device = 0,
         std::uint16_t processes = 2, std::chrono::nanoseconds timeout = 60s)
      : session({.place = {.process = process,
                           .processes = processes,
                           .run = "test",
                           .restart = restart,
                           .host = "here",
                           .rendezvous = parse_rendezvous(leader.address(), "the leader"),
                           .token = token,
                           .timeout = timeout},
                 .devices = {{0, device}}},
                sequencer) {}
  void leave() { session.leave(std::chrono::steady_clock::now() + 60s); }

  static constexpr cox::detail::WorldToken token{std::byte{7}};
};

}  // namespace

TEST_CASE("Processes that join know each other's devices") {
  const TemporaryFolder folder;
  Member first(folder, 0, 2);
  Member second(folder, 1, 2);
  auto joined = std::async(std::launch::async, [&] { first.session.join(); });
  second.session.join();
  joined.get();
  for (const Member* member : {&first, &second}) {
    REQUIRE(member->session.processes().size() == 2);
    CHECK(member->session.processes()[1].host == "here");
    CHECK(member->session.processes()[1].devices == std::vector{DeviceId{0, 1, 2}});
  }
  second.session.leave(std::chrono::steady_clock::now() + 60s);
  first.session.leave(std::chrono::steady_clock::now() + 60s);
}

TEST_CASE("A process that does not come is named at the deadline") {
  const TemporaryFolder folder;
  Member first(folder, 0, 3, 500ms);
  Member second(folder, 1, 3, 500ms);
  auto joined = std::async(std::launch::async, [&] { second.session.join(); });
  const std::string text = message_of([&] { first.session.join(); });
  CHECK_THAT(text, ContainsSubstring("process 2"));
  CHECK_THAT(text, !ContainsSubstring("process 1"));
  CHECK_THROWS_AS(joined.get(), WorldError);
}

TEST_CASE("A process may leave as soon as it has joined, and the others join all the same", "[world]") {
  constexpr std::uint16_t processes = 4;
  for (int round = 0; round < 25; ++round) {
    const WorldLeader leader({.processes = processes, .run = "test", .token = Member::token});
    std::array<std::future<void>, processes> left;
    for (std::uint16_t process = 0; process < processes; ++process)
      left[process] = std::async(std::launch::async, [&leader, process] {
        Member member(leader, process, 0, process, processes);
        member.session.join();
        member.leave();
      });
    for (std::future<void>& each : left) REQUIRE_NOTHROW(each.get());
  }
}

TEST_CASE("A process that ends before all have connected fails none that has connected to it", "[world]") {
  const TemporaryFolder folder;
  Member first(folder, 0, 3);
  Member last(folder, 2, 3);
  auto first_joined = std::async(std::launch::async, [&] { first.session.join(); });
  auto last_joined = std::async(std::launch::async, [&] { last.session.join(); });
  {
    RawProcess raw(folder, 1, 3);
    raw.listen();
    raw.join(RawProcess::Says::Nothing);
    RawConnection data = raw.accept();
    static_cast<void>(data.receive());
    data.send(raw.data_hello());
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (!(first.session.exchange().has(1) && last.session.exchange().has(1)) &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    CHECK(first_joined.wait_for(0s) == std::future_status::timeout);
    CHECK(last_joined.wait_for(0s) == std::future_status::timeout);
    raw.control().send(cox::detail::world::Bye{.text = "it gives up"});
    CHECK(raw.control().is_closed_by_other());
  }
  CHECK_NOTHROW(first_joined.get());
  CHECK_NOTHROW(last_joined.get());
  last.leave();
  first.leave();
}

TEST_CASE("A process that waits in vain for others of its world names them", "[world]") {
  const auto require_timeout = [](Member& member, const std::string& why) {
    try {
      member.session.join();
      FAIL("it has joined");
    } catch (const WorldError& error) {
      CHECK(error.kind() == WorldError::Kind::Timeout);
      CHECK_THAT(error.what(), ContainsSubstring(why));
    }
  };
  SECTION("to join, and `cox run` leads") {
    const SettingsScope settings({{"world.heartbeat", std::chrono::nanoseconds(50ms)}});
    const WorldLeader leader({.processes = 3, .run = "test", .token = Member::token});
    Member second(leader, 1, 0, 1, 3, 1s);
    require_timeout(second, "process 0, process 2 did not join the world in time");
  }
  SECTION("to join, and process 0 leads") {
    const TemporaryFolder folder;
    Member first(folder, 0, 3, 5s);
    auto joined = std::async(std::launch::async, [&] { return kind_of<WorldError>([&] { first.session.join(); }); });
    Member second(folder, 1, 3, 3s);
    require_timeout(second, "process 2 did not join the world in time");
    CHECK(joined.get() == WorldError::Kind::Timeout);
  }
  SECTION("to connect to all") {
    const TemporaryFolder folder;
    Member first(folder, 0, 3, 20s);
    auto joined = std::async(std::launch::async, [&] { return kind_of<WorldError>([&] { first.session.join(); }); });
    auto raw = std::make_unique<RawProcess>(folder, 2, 3);
    auto raw_joined = std::async(std::launch::async, [&] { raw->join(RawProcess::Says::Nothing); });
    Member second(folder, 1, 3, 4s);
    require_timeout(second, "process 2 (raw, pid 1) did not connect to all processes in time");
    raw_joined.get();
    CHECK(joined.get().has_value());  // since process 1 is gone
  }
}

TEST_CASE("A successor that is faster than the first processes does not keep them from joining", "[world]") {
  using namespace cox::detail::world;
  constexpr std::uint16_t processes = 3;
  const WorldLeader leader({.processes = processes, .run = "test", .token = Member::token});
  const Rendezvous at = parse_rendezvous(leader.address(), "the leader");
  const auto hello = [](std::uint16_t process, std::uint32_t restart) {
    return Hello{
        .token = Member::token,
        .library = COX_VERSION,
        .run = "test",
        .process = process,
        .processes = processes,
        .facts = {
            .host = "here", .restart = restart, .devices = {{0, process, static_cast<std::uint16_t>(process + 1)}}}};
  };
  std::vector<RawConnection> first;
  for (std::uint16_t process = 0; process < processes; ++process) {
    first.emplace_back(at.host, at.port);
    first.back().send(hello(process, 0));
  }
  for (RawConnection& each : first) static_cast<void>(std::get<Welcome>(each.receive()));
  first.pop_back();  // ends before it has connected to all
  RawConnection successor(at.host, at.port);
  successor.send(hello(processes - 1, 1));
  static_cast<void>(std::get<Welcome>(successor.receive()));
  successor.send(Connected{});
  const auto receive = [](RawConnection& connection, std::size_t index) {
    while (connection.receive().index() != index) {
    }
  };
  for (RawConnection& each : first) receive(each, Message(Joined{}).index());
  for (RawConnection& each : first) each.send(Connected{});
  for (RawConnection& each : first) CHECK_NOTHROW(receive(each, Message(Connected{}).index()));
}

TEST_CASE("A process that has another number of processes is refused, and the world waits for the right one") {
  const TemporaryFolder folder;
  Member first(folder, 0, 2);
  auto joined = std::async(std::launch::async, [&] { first.session.join(); });
  Member wrong(folder, 1, 3, 20s);
  CHECK(kind_of<WorldError>([&] { wrong.session.join(); }) == WorldError::Kind::Refused);
  CHECK(joined.wait_for(0s) == std::future_status::timeout);
  Member right(folder, 1, 2);
  right.session.join();
  joined.get();
  right.session.leave(std::chrono::steady_clock::now() + 60s);
  first.session.leave(std::chrono::steady_clock::now() + 60s);
}

TEST_CASE("L16: under a leader of its own a process that is gone gets a successor", "[world]") {
  const WorldLeader leader({.processes = 2, .run = "test", .token = Member::token});
  Member first(leader, 0, 0);
  auto second = std::make_unique<Member>(leader, 1, 0);
  auto joined = std::async(std::launch::async, [&] { first.session.join(); });
  second->session.join();
  joined.get();
  CHECK(first.session.wait_until_complete(std::chrono::steady_clock::now() + 60s));
  CHECK_THAT(leader.describe(), ContainsSubstring("a world of 2 processes, 0 operations") &&
                                    ContainsSubstring("process 1 (here, pid ") && ContainsSubstring(": p1/") &&
                                    ContainsSubstring("heard 0.") && !ContainsSubstring("gone"));
  const auto refusal_of = [&](std::uint32_t restart, std::uint16_t device) {
    Member other(leader, 1, restart, device);
    return message_of([&] { other.session.join(); });
  };
  CHECK_THAT(refusal_of(0, 0), ContainsSubstring("process 1 has joined already"));
  CHECK_THAT(refusal_of(1, 1), ContainsSubstring("other devices"));
  second->leave();
  second.reset();
  // It is known to be gone when that has been reported.
  while (first.session.wait_until_complete(std::chrono::steady_clock::now())) std::this_thread::yield();
  CHECK_THAT(refusal_of(0, 0), ContainsSubstring("process 1 has joined already"));  // no restart of it
  CHECK_THAT(leader.describe(), ContainsSubstring(", is gone"));
  Member successor(leader, 1, 1);
  successor.session.join();
  CHECK(first.session.wait_until_complete(std::chrono::steady_clock::now() + 60s));
  CHECK(successor.session.wait_until_complete(std::chrono::steady_clock::now() + 60s));
  CHECK(first.session.processes()[1].restart == 1);
  CHECK_THAT(leader.describe(), ContainsSubstring(", restart 1") && !ContainsSubstring("gone"));
  successor.leave();
  first.leave();
}

TEST_CASE("The leader of a world accepts no process with another token, and its end is the world's", "[world]") {
  auto leader = std::make_unique<WorldLeader>(
      WorldLeaderOptions{.processes = 2, .run = "test", .token = cox::detail::WorldToken{std::byte{8}}});
  CHECK_THAT(leader->describe(), ContainsSubstring("0 have joined") && ContainsSubstring("process 1: has not joined"));
  Member stranger(*leader, 0, 0);
  CHECK_THAT(message_of([&] { stranger.session.join(); }), ContainsSubstring("token"));
  leader = std::make_unique<WorldLeader>(WorldLeaderOptions{.processes = 2, .run = "test", .token = Member::token});
  Member first(*leader, 0, 0);
  Member second(*leader, 1, 0);
  auto joined = std::async(std::launch::async, [&] { first.session.join(); });
  second.session.join();
  joined.get();
  leader.reset();
  CHECK(kind_of<CollectiveError>([&] {
          static_cast<void>(first.session.wait_until_complete(std::chrono::steady_clock::now() + 60s));
          // A world that is complete returns at once, until the end of the leader has been noticed.
          while (true) static_cast<void>(first.session.wait_until_complete(std::chrono::steady_clock::now()));
        }) == CollectiveError::Kind::WorldGone);
  second.leave();
  first.leave();
}

TEST_CASE("A process that loses its world tells the leader why", "[world]") {
  LogLines lines(LogSubsystem::Collectives, LogLevel::Warn);
  const WorldLeader leader({.processes = 2, .run = "test", .token = Member::token});
  Member first(leader, 0, 0);
  Member second(leader, 1, 0);
  auto joined = std::async(std::launch::async, [&] { first.session.join(); });
  second.session.join();
  joined.get();
  second.leave();
  while (first.session.wait_until_complete(std::chrono::steady_clock::now())) std::this_thread::yield();
  // A successor that has not connected to the others.
  const Rendezvous at = parse_rendezvous(leader.address(), "the leader");
  RawConnection successor(at.host, at.port);
  successor.send(cox::detail::world::Hello{.token = Member::token,
                                           .library = COX_VERSION,
                                           .run = "test",
                                           .process = 1,
                                           .processes = 2,
                                           .facts = {.host = "here", .restart = 1, .devices = {{0, 0, 2}}}});
  static_cast<void>(successor.receive());
  successor.send(cox::detail::world::Connected{});
  const std::string told = " is gone: it has left the world: the successor of process 1";
  const auto is_told = [&] {
    return std::ranges::any_of(lines.get(), [&](const std::string& line) { return line.find(told) != line.npos; });
  };
  for (const auto end = std::chrono::steady_clock::now() + 20s; !is_told() && std::chrono::steady_clock::now() < end;)
    std::this_thread::yield();
  CHECK(is_told());
  first.leave();
}
