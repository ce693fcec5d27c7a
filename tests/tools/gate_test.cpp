#include <coxswain/tools/cox/stress/gate.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <atomic>
#include <thread>

using namespace cox::stress;

TEST_CASE("Whoever closes a gate waits for those inside, and lets nobody else in") {
  Gate gate;
  gate.enter();
  std::atomic<bool> closed{false};
  std::jthread closer([&] {
    gate.close();
    closed = true;
    gate.open();
  });
  // It is closing when others cannot enter any more.
  while (gate.try_enter()) {
    gate.leave();
    std::this_thread::yield();
  }
  CHECK_FALSE(closed);
  gate.leave();
  gate.enter();  // waits until it is open again
  CHECK(closed);
  gate.leave();
}
