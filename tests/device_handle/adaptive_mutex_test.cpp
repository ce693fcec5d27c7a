#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/queue/adaptive_mutex.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

using cox::detail::AdaptiveMutex;

TEST_CASE("Of several threads one at a time holds the mutex") {
  constexpr std::size_t threads = 4;
  constexpr std::size_t times = 20'000;
  AdaptiveMutex mutex;
  std::size_t count = 0;  // guarded by mutex
  std::vector<std::thread> all;
  for (std::size_t i = 0; i < threads; ++i)
    all.emplace_back([&] {
      for (std::size_t k = 0; k < times; ++k) {
        const std::lock_guard lock(mutex);
        ++count;
      }
    });
  for (std::thread& thread : all) thread.join();
  CHECK(count == threads * times);
}

TEST_CASE("Who finds the mutex locked cannot have it, and gets it when it is free") {
  AdaptiveMutex mutex;
  std::unique_lock held(mutex);
  std::atomic<bool> refused{false};
  std::atomic<bool> got{false};
  std::thread other([&] {
    refused = !mutex.try_lock();
    const std::lock_guard lock(mutex);
    got = true;
  });
  while (!refused) std::this_thread::yield();
  CHECK_FALSE(got);
  held.unlock();
  other.join();
  CHECK(got);
}
