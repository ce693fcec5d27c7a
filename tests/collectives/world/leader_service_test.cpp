#include <coxswain/collectives/world/leader_service.hpp>
#include <coxswain/tests/collectives/world/raw_process.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address_v4.hpp>

#include <chrono>
#include <cstdint>
#include <future>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

using namespace cox::detail::world;
using namespace std::chrono_literals;
using cox::test::RawConnection;

namespace {

using Clock = std::chrono::steady_clock;

/// A leader without a thread, and the connections of its processes.
struct LedWorld {
  boost::asio::io_context io;
  std::vector<std::uint16_t> lost;
  LeaderService service;
  std::vector<RawConnection> processes;

  explicit LedWorld(std::uint16_t count)
      : service(io, {.processes = count, .run = "test"},
                {.lost = [this](std::uint16_t process, auto, const std::string&) { lost.push_back(process); }}) {
    service.listen(boost::asio::ip::address_v4::loopback());
    for (std::uint16_t process = 0; process < count; ++process) {
      processes.emplace_back("127.0.0.1", service.endpoint().port());
      processes.back().send(Hello{
          .library = COX_VERSION,
          .run = "test",
          .process = process,
          .processes = count,
          .facts = {.host = "raw", .pid = 1, .data_address = "127.0.0.1", .data_port = 1, .devices = {{0, process}}}});
    }
    for (const auto end = Clock::now() + 20s; service.present() < count;) {
      io.run_for(1ms);
      if (Clock::now() > end) throw std::runtime_error("the processes have not joined");
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
