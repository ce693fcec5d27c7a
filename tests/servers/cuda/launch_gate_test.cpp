#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/peer/launch_gate.hpp>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

using cox::detail::LaunchGate;

TEST_CASE("Ranks ask as long as nobody wants it quiet") {
  LaunchGate gate;
  REQUIRE(gate.try_enter([] {}));
  REQUIRE(gate.try_enter([] {}));
  gate.leave();
  gate.leave();
  CHECK(gate.quiesce() != nullptr);
  REQUIRE(gate.try_enter([] {}));
  gate.leave();
}

TEST_CASE("While it is quiet nobody asks; then those who wanted to are told, once") {
  LaunchGate gate;
  auto quiet = gate.quiesce();
  auto another = gate.quiesce();
  int told = 0;
  CHECK_FALSE(gate.try_enter([&] { ++told; }));
  CHECK_FALSE(gate.try_enter([&] { ++told; }));
  quiet.reset();
  CHECK(told == 0);
  another.reset();
  CHECK(told == 2);
  REQUIRE(gate.try_enter([&] { ++told; }));
  gate.leave();
  CHECK(told == 2);
}

TEST_CASE("T1: it is quiet only when all that was released has been launched") {
  LaunchGate gate;
  REQUIRE(gate.try_enter([] {}));
  gate.add_launch();
  gate.add_launch();
  gate.leave();
  std::atomic<bool> quiet{false};
  std::thread maker([&] {
    const auto held = gate.quiesce();
    quiet = true;
  });
  while (gate.try_enter([] {})) {  // until it is closed
    gate.leave();
    std::this_thread::yield();
  }
  gate.remove_launch();
  CHECK_FALSE(quiet);
  gate.remove_launch();
  maker.join();
  CHECK(quiet);
}

TEST_CASE("T1: nothing is half launched while it is quiet, whatever the threads do") {
  LaunchGate gate;
  std::atomic<int> half_launched{0};
  std::atomic<bool> wrong{false};
  std::atomic<bool> over{false};
  std::vector<std::thread> ranks;
  for (int i = 0; i < 3; ++i)
    ranks.emplace_back([&] {
      while (!over) {
        if (!gate.try_enter([] {})) {
          std::this_thread::yield();
          continue;
        }
        ++half_launched;
        gate.add_launch();
        gate.leave();
        --half_launched;
        gate.remove_launch();
      }
    });
  for (int i = 0; i < 300; ++i) {
    const auto quiet = gate.quiesce();
    if (half_launched != 0) wrong = true;
  }
  over = true;
  for (std::thread& rank : ranks) rank.join();
  CHECK_FALSE(wrong);
}
