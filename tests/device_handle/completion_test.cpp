#include <coxswain/device_handle/service/completion.hpp>

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

using namespace contract;
using cox::Completion;

TEST_CASE("A completion signalled before the wait returns at once", "[completion]") {
  Completion completion;
  CHECK_FALSE(completion.done());
  completion.signal();
  CHECK(completion.done());
  completion.wait(0ns);
  CHECK(completion.wait_until(std::chrono::steady_clock::now() - 1s));
}

TEST_CASE("A completion that is not signalled ends its wait at the deadline", "[completion]") {
  Completion completion;
  const auto deadline = std::chrono::steady_clock::now() + 20ms;
  CHECK_FALSE(completion.wait_until(deadline));
  CHECK(std::chrono::steady_clock::now() >= deadline);
  CHECK_FALSE(completion.wait_until(deadline));
}

TEST_CASE("No signal is lost, whenever it comes, and the completion may go right after", "[completion]") {
  constexpr int rounds = scaled(50'000);
  std::atomic<Completion*> current{nullptr};
  std::thread signaller([&] {
    for (int i = 0; i < rounds; ++i) {
      Completion* completion = nullptr;
      while ((completion = current.exchange(nullptr)) == nullptr) std::this_thread::yield();
      completion->signal();
    }
  });
  for (int i = 0; i < rounds; ++i) {
    Completion completion;
    current = &completion;
    completion.wait(std::chrono::nanoseconds(i % 3 * 1000));
  }
  signaller.join();
  SUCCEED();
}

TEST_CASE("interrupt() makes a waiter check its condition", "[completion]") {
  for (int round = 0; round < 200; ++round) {
    Completion completion;
    std::atomic<bool> interrupted{false};
    Gate returned;
    bool signalled = true;
    std::thread waiter([&] {
      signalled = completion.wait_until(std::nullopt, [&] { return interrupted.load(); });
      returned.open();
    });
    interrupted = true;
    completion.interrupt();
    const bool in_time = returned.opens_within(never);
    if (!in_time) completion.signal();
    waiter.join();
    REQUIRE(in_time);
    REQUIRE_FALSE(signalled);
  }
}
