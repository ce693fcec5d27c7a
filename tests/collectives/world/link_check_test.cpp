// What processes tell each other about their data link, by way of the leader, and which of them must leave.

#include <coxswain/tests/collectives/world/raw_process.hpp>
#include <coxswain/tests/collectives/world/world_of_three.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/log_lines.hpp>

#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>

using namespace cox;
using namespace cox::test;
using namespace cox::detail::world;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

using Check = LinkCheck::Kind;

MemberOptions often() { return {.heartbeat = 50ms}; }

/// The next message of this type; others are discarded.
template <class T>
T next_of(RawConnection& control) {
  for (const auto deadline = std::chrono::steady_clock::now() + 10s; std::chrono::steady_clock::now() < deadline;) {
    const Message message = control.receive();
    if (const auto* const found = std::get_if<T>(&message)) return *found;
  }
  throw std::runtime_error("the message has not come");
}

/// Waits until the process has lost its world. Returns the kind of the error; nothing if it has not.
std::optional<CollectiveError::Kind> kind_of_loss(SessionMember& member) {
  return kind_of<CollectiveError>([&] {
    for (const auto end = std::chrono::steady_clock::now() + 20s; std::chrono::steady_clock::now() < end;) {
      static_cast<void>(member.session.wait_until_complete(std::chrono::steady_clock::now()));
      std::this_thread::yield();
    }
  });
}

std::string all_of(LogLines& lines) {
  std::string text;
  for (const std::string& line : lines.get()) text += line + "\n";
  return text;
}

}  // namespace

TEST_CASE("L16: a process whose data link has ended reports it to the other one, also when that asks") {
  WorldOfThree world(often());
  world.raw.data(0).end_sending();
  const auto ended = next_of<LinkCheck>(world.raw.control());
  CHECK(ended.kind == Check::Broken);
  CHECK(ended.process == 0);
  world.raw.control().send(LinkCheck{.kind = Check::Asks, .process = 0, .bytes = 1000});
  CHECK(next_of<LinkCheck>(world.raw.control()).kind == Check::Broken);
  const auto gone = next_of<Gone>(world.raw.control());
  CHECK(gone.process == 1);
  CHECK_THAT(gone.text, ContainsSubstring("process 1 (raw, pid 1) is gone: it has no connection to process 0 (here"));
  CHECK(world.raw.control().is_closed_by_other());
  world.check_others();
}

TEST_CASE("A process that is asked says how much it has sent, if that is more than has arrived") {
  WorldOfThree world(often());
  const std::uint64_t sent = frame_of(DataHello{}).size();
  for (const std::uint16_t process : {std::uint16_t{0}, std::uint16_t{2}}) {
    CAPTURE(process);
    RawConnection& control = world.raw.control();
    control.send(LinkCheck{.kind = Check::Asks, .process = process, .bytes = sent});
    control.send(LinkCheck{.kind = Check::Asks, .process = process, .restart = 1, .bytes = sent - 2});
    control.send(LinkCheck{.kind = Check::Asks, .process = process, .bytes = sent - 1});
    CHECK(next_of<LinkCheck>(control) == LinkCheck{.kind = Check::Sent, .process = process, .bytes = sent});
    if (process == 0) continue;
    world.data_of_last->end_sending();
    CHECK(next_of<LinkCheck>(control).kind == Check::Broken);  // there was no other answer
  }
  world.raw.control().send(Bye{});
  world.check_others();
}

TEST_CASE("L16: of two processes without a connection, the one with the higher number leaves the world") {
  LogLines lines(LogSubsystem::Collectives, LogLevel::Warn);
  WorldOfThree world(often());
  world.raw.control().send(LinkCheck{.kind = Check::Broken, .process = 2});
  CHECK(kind_of_loss(world.last) == CollectiveError::Kind::WorldGone);
  CHECK(next_of<Gone>(world.raw.control()).process == 2);
  CHECK(world.first.session.exchange().has(1));
  CHECK_THAT(all_of(lines), ContainsSubstring("the connection to process 1 (raw, pid 1) is broken: process 1 (raw"));
  world.raw.control().send(Bye{});
  world.last.leave();
  world.first.leave();
}

TEST_CASE("L16: a process whose connections to several others end leaves the world alone") {
  WorldOfThree world(often());
  world.data_of_last->end_sending();
  world.raw.data(0).end_sending();
  CHECK(next_of<Gone>(world.raw.control()).process == 1);
  CHECK(world.raw.control().is_closed_by_other());
  CHECK_NOTHROW(world.last.session.wait_until_complete(std::chrono::steady_clock::now()));
  world.check_others();
}

TEST_CASE("Why a process leaves the world is what the others are told") {
  LogLines lines(LogSubsystem::Collectives, LogLevel::Warn);
  WorldOfThree world;
  world.raw.control().send(Bye{.text = "it has no memory"});
  CHECK(world.raw.control().is_closed_by_other());
  world.check_others();
  CHECK_THAT(all_of(lines),
             ContainsSubstring("process 1 (raw, pid 1) is gone: it has left the world: it has no memory"));
}
