#include <coxswain/tests/collectives/sequencer_bench.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/servers/cuda/peer/launch_gate.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

using cox::detail::LaunchGate;

TEST_CASE("Ranks ask as long as nobody wants it quiet") {
  LaunchGate gate;
  REQUIRE(gate.try_enter([] {}));
  REQUIRE(gate.try_enter([] {}));
  gate.leave();
  gate.leave();
  CHECK(gate.quiesce(LaunchGate::Purpose::Create) != nullptr);
  REQUIRE(gate.try_enter([] {}));
  gate.leave();
}

TEST_CASE("While it is quiet nobody asks; then those who wanted to are told, once") {
  LaunchGate gate;
  auto quiet = gate.quiesce(LaunchGate::Purpose::Wait);
  auto another = gate.quiesce(LaunchGate::Purpose::Wait);
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

TEST_CASE("T2: who creates communicators does it alone, and whoever waits for kernels does not do it meanwhile") {
  using namespace std::chrono_literals;
  using Purpose = LaunchGate::Purpose;
  LaunchGate gate;
  const auto [first, second] =
      GENERATE(std::pair{Purpose::Create, Purpose::Create}, std::pair{Purpose::Create, Purpose::Wait},
               std::pair{Purpose::Create, Purpose::Foreign}, std::pair{Purpose::Wait, Purpose::Create},
               std::pair{Purpose::Wait, Purpose::Foreign}, std::pair{Purpose::Foreign, Purpose::Create},
               std::pair{Purpose::Foreign, Purpose::Wait});
  auto quiet = gate.quiesce(first);
  int told = 0;
  CHECK_FALSE(gate.try_enter([&] { ++told; }));
  const auto try_second = [&gate, purpose = second] { return gate.try_quiesce(1ms, purpose); };
  CHECK(std::async(std::launch::async, try_second).get() == nullptr);
  std::atomic<bool> released{false};
  std::atomic<bool> was_released{false};
  std::thread next([&, purpose = second] {
    const auto held = gate.quiesce(purpose);
    was_released = released.load();
  });
  CHECK(told == 0);
  released = true;
  quiet.reset();
  next.join();
  CHECK(was_released);
  CHECK(told == 1);
  CHECK(gate.try_quiesce(1ms) != nullptr);
}

TEST_CASE("Callers with the same purpose hold it closed together, unless they create communicators") {
  using Purpose = LaunchGate::Purpose;
  LaunchGate gate;
  const Purpose purpose = GENERATE(Purpose::Wait, Purpose::Foreign);
  int told = 0;
  auto quiet = gate.quiesce(purpose);
  auto of_other_thread = std::async(std::launch::async, [&] { return gate.quiesce(purpose); }).get();
  quiet.reset();
  CHECK_FALSE(gate.try_enter([&] { ++told; }));
  of_other_thread.reset();
  CHECK(told == 1);
}

TEST_CASE("Foreign code that runs while the gate is closed can call what may wait for kernels, on its thread") {
  using namespace std::chrono_literals;
  using Purpose = LaunchGate::Purpose;
  LaunchGate gate;
  auto foreign = gate.quiesce(Purpose::Foreign);
  int told = 0;
  CHECK_FALSE(gate.try_enter([&] { ++told; }));
  auto nested = gate.quiesce(Purpose::Wait);
  const auto other_thread = [&](Purpose purpose) {
    return std::async(std::launch::async, [&gate, purpose] { return gate.try_quiesce(1ms, purpose); }).get();
  };
  CHECK(other_thread(Purpose::Wait) == nullptr);  // it still excludes the others
  CHECK(other_thread(Purpose::Foreign) != nullptr);
  if (GENERATE(false, true)) std::swap(foreign, nested);
  nested.reset();
  CHECK(other_thread(Purpose::Wait) == nullptr);
  CHECK(told == 0);
  foreign.reset();
  CHECK(told == 1);
  CHECK(other_thread(Purpose::Wait) != nullptr);
  auto wait = gate.quiesce(Purpose::Wait);  // it is forgotten that this thread held it
  CHECK(other_thread(Purpose::Wait) != nullptr);
}

TEST_CASE("T1: without patience for what was released it stays open") {
  using namespace std::chrono_literals;
  LaunchGate gate;
  REQUIRE(gate.try_enter([] {}));
  CHECK(gate.try_quiesce(1ms) == nullptr);
  gate.leave();
  REQUIRE(gate.try_enter([] {}));
  gate.leave();
  CHECK(gate.try_quiesce(1ms) != nullptr);
}

TEST_CASE("T1: it is quiet only when all that was released has been launched") {
  LaunchGate gate;
  REQUIRE(gate.try_enter([] {}));
  gate.add_launch();
  gate.add_launch();
  gate.leave();
  std::atomic<bool> quiet{false};
  std::thread maker([&] {
    const auto held = gate.quiesce(LaunchGate::Purpose::Create);
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

TEST_CASE("T1: it is quiet only when the devices know of what a rank's submission released, after that has left, too") {
  using namespace std::chrono_literals;
  LaunchGate gate;
  cox::Sequencer& sequencer = cox::Communicators::of_process().sequencer();
  std::latch notifying(1);
  std::latch go_on(1);
  sequencer.set_launch_thread(cox::test::device(0), [&] {
    notifying.count_down();
    go_on.wait();
    gate.add_launch();
  });
  const cox::CommunicatorNumber alone = sequencer.open(cox::test::among({0}), 1h);
  cox::test::Told told;
  REQUIRE(gate.try_enter());
  auto quiet = std::async(std::launch::async, [&] { return gate.quiesce(LaunchGate::Purpose::Wait); });
  while (gate.try_enter()) {
    gate.leave();
    std::this_thread::yield();
  }
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // it goes on to wait for the rank
  auto submitting = std::async(std::launch::async, [&] {
    static_cast<void>(sequencer.submit(
        alone, 0, {.requests = {cox::test::of_count(1)}, .launch = told.launch(), .on_launch_thread = true}));
  });
  notifying.wait();
  gate.leave();
  CHECK(quiet.wait_for(50ms) == std::future_status::timeout);
  go_on.count_down();
  submitting.get();
  CHECK(quiet.wait_for(50ms) == std::future_status::timeout);
  sequencer.drain_launches(cox::test::device(0));
  CHECK(told.times() == 1);
  gate.remove_launch();
  quiet.get().reset();
  sequencer.set_launch_thread(cox::test::device(0), {});
  sequencer.close(alone);
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
    const auto quiet = gate.quiesce(LaunchGate::Purpose::Create);
    if (half_launched != 0) wrong = true;
  }
  over = true;
  for (std::thread& rank : ranks) rank.join();
  CHECK_FALSE(wrong);
}
