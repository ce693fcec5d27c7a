#include <coxswain/collectives/world/leader_service.hpp>
#include <coxswain/tests/collectives/world/raw_process.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address_v4.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

using namespace cox::detail::world;
using namespace std::chrono_literals;
using cox::test::RawConnection;

namespace {

using Clock = std::chrono::steady_clock;

ProcessFacts facts_of(std::uint16_t process) {
  return {.host = "raw", .pid = 1, .data_address = "127.0.0.1", .data_port = 1, .devices = {{0, process}}};
}

/// A leader without a thread, and the connections of its processes. With an own process, that is process 0.
struct LedWorld {
  boost::asio::io_context io;
  std::vector<std::uint16_t> lost;
  std::vector<std::uint16_t> expelled;
  std::function<void(const Message&)> to_own = [](const Message&) {};
  LeaderService service;
  std::vector<RawConnection> processes;

  explicit LedWorld(std::uint16_t count, std::optional<std::uint16_t> own = std::nullopt)
      : service(io, {.processes = count, .run = "test", .own = own},
                {.to_own = [this](const Message& message) { to_own(message); },
                 .lost = [this](std::uint16_t process, auto, const std::string&) { lost.push_back(process); },
                 .expelled = [this](std::uint16_t process, std::uint32_t) { expelled.push_back(process); }}) {
    service.listen(boost::asio::ip::address_v4::loopback());
    if (own) service.set_own(facts_of(*own));
    for (std::uint16_t process = 0; process < count; ++process) {
      processes.emplace_back("127.0.0.1", service.endpoint().port());
      if (process == own) continue;
      processes.back().send(Hello{
          .library = COX_VERSION, .run = "test", .process = process, .processes = count, .facts = facts_of(process)});
    }
    run_until([&] { return service.present() == count - (own ? 1U : 0U); });
  }

  template <class Done>
  void run_until(const Done& done) {
    for (const auto end = Clock::now() + 20s; !done();) {
      io.run_for(1ms);
      if (Clock::now() > end) throw std::runtime_error("the leader has not come so far");
    }
  }

  /// The process reports the link, and the other one has been told.
  void report_broken(std::uint16_t process, std::uint16_t other) {
    processes[process].send(LinkCheck{.kind = LinkCheck::Kind::Broken, .process = other});
    auto told = std::async(std::launch::async, [&] {
      while (!std::holds_alternative<LinkCheck>(processes[other].receive())) {
      }
    });
    while (told.wait_for(0s) != std::future_status::ready) io.run_for(1ms);
    told.get();
  }
};

}  // namespace

TEST_CASE("L16: a leader that was held up reads what it has missed before it chooses a process that leaves") {
  LedWorld world(3);
  auto now = Clock::now();
  const auto send_heartbeats = [&](std::chrono::seconds later) {
    now += later;
    world.service.send_heartbeats(now, now);
  };
  send_heartbeats(0s);
  world.report_broken(2, 1);
  send_heartbeats(100s);  // it was held up
  CHECK(world.lost.empty());
  world.report_broken(0, 1);
  for (int i = 0; i < 4; ++i) send_heartbeats(1s);
  CHECK(world.lost.empty());
  send_heartbeats(1s);
  CHECK(world.lost == std::vector<std::uint16_t>{1});
  for (int i = 0; i < 10; ++i) send_heartbeats(1s);
  CHECK(world.lost.size() == 1);
  world.service.close();
}

// The own process may block when it gets a release, and all this while the others would wait for theirs.
TEST_CASE("What the leader sends to all processes is sent to the others before the own one gets it") {
  LedWorld world(3, 0);
  world.service.start();
  std::optional<Message> at_other;
  world.to_own = [&](const Message& message) {
    if (!std::holds_alternative<Gone>(message)) return;
    do at_other = world.processes[2].receive();
    while (!std::holds_alternative<Gone>(*at_other));
  };
  world.processes[1].send(Bye{});
  world.run_until([&] { return at_other.has_value(); });
  CHECK(std::get<Gone>(*at_other).process == 1);
  world.service.close();
}

TEST_CASE("A process that is silent is lost when the process of the leader leaves, which waits for it") {
  LedWorld world(3, 0);
  world.service.start();
  for (const std::size_t process : {1U, 2U}) world.processes[process].send(Connected{});
  world.service.note_own_connected();
  world.run_until([&] { return world.service.are_all_connected(); });
  auto now = Clock::now();
  const auto pass = [&] {
    for (int second = 0; second < 60; ++second) world.service.send_heartbeats(now += 1s, Clock::now());
  };
  pass();
  CHECK(world.lost.empty());  // nothing waits for it
  world.service.receive_own(Bye{});
  pass();
  CHECK(world.lost == std::vector<std::uint16_t>{1, 2});
  world.service.close();
}

TEST_CASE("L16: a process that ends its connection without having left the world is expelled") {
  LedWorld world(3);
  world.processes[0].send(Bye{});
  world.processes[1].send(Bye{.text = "it has lost the world"});
  world.processes[2].end_sending();
  world.run_until([&] { return world.lost.size() == 3; });
  std::ranges::sort(world.expelled);
  CHECK(world.expelled == std::vector<std::uint16_t>{1, 2});
  world.service.close();
}
