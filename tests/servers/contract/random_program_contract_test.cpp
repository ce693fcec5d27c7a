#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/servers/contract/random_program.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cox::test;

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr std::size_t slower = 20;
#elif defined(__SANITIZE_ADDRESS__)
constexpr std::size_t slower = 8;
#else
constexpr std::size_t slower = 1;
#endif

constexpr std::size_t streams = 8;
template <class Backend>
constexpr DeviceOptions roomy{.memory = 8 * Backend::fine_memory, .threads = 4, .devices = 1};
/// On the host two granules of 4 KiB for each of 150 buffers, 1 MiB for the buffers, and 1.5 MiB left for the next one;
/// where granules are larger, room for all of them several times.
template <class Backend>
constexpr DeviceOptions tight{
    .memory = std::max(std::size_t{4} << 20U, 4 * Backend::min_memory), .threads = 4, .devices = 1};
constexpr RandomProgramOptions in_tight_memory{
    .bytes = std::size_t{1} << 20U, .allocations = 150, .largest = std::size_t{64} << 10U};

/// So many steps, or as many as the device does in the time.
template <class Backend>
constexpr std::size_t steps(std::size_t count) {
  return count / 10 * Backend::program_length;
}

template <class Backend>
void require_right(const DeviceOptions& device_options, const RandomProgramOptions& options) {
  OpenDevice<Backend> device(device_options);
  RandomProgram<Backend> program(device.client(), options);
  const std::string failure = program.run();
  INFO(failure);
  REQUIRE(failure.empty());
  REQUIRE(device.client().memory_usage().number_allocs == 0);
  REQUIRE(device.client().memory_usage().bytes_in_use == 0);
}

/// Windows on their way from each program to each other, in order.
class Exchanges {
 public:
  /// Gives to one program and waits for another's gift, each round others; nothing after stop().
  std::vector<ProgramWindow> swap(std::size_t self, std::size_t round, std::vector<ProgramWindow> given) {
    const std::size_t apart = 1 + round % (streams - 1);
    std::unique_lock lock(mutex_);
    ways_[self][(self + apart) % streams].push_back(std::move(given));
    changed_.notify_all();
    auto& mine = ways_[(self + streams - apart) % streams][self];
    changed_.wait(lock, [&] { return stopped_ || !mine.empty(); });
    if (mine.empty()) return {};
    std::vector<ProgramWindow> taken = std::move(mine.front());
    mine.pop_front();
    return taken;
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::array<std::array<std::deque<std::vector<ProgramWindow>>, streams>, streams> ways_;
};

}  // namespace

TEMPLATE_TEST_CASE("L1 L11 L14: random programs on 8 streams read what they would read one step after the other", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  for (const std::uint64_t seed : {1U, 2U, 3U})
    require_right<TestType>(
        roomy<TestType>, {.seed = seed, .operations = steps<TestType>(streams * 5000 / slower), .failures = seed != 2});
}

TEMPLATE_TEST_CASE("L11 L14: random programs read the same where all memory is used again and again", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  for (const std::uint64_t seed : {4U, 5U, 6U}) {
    RandomProgramOptions options = in_tight_memory;
    options.seed = seed;
    options.operations = steps<TestType>(streams * 5000 / slower);
    options.failures = seed != 5;
    require_right<TestType>(tight<TestType>, options);
  }
}

TEMPLATE_TEST_CASE("L1 L11 L14: a long random program reads what it would read one step after the other", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  require_right<TestType>(roomy<TestType>, {.seed = 7, .operations = steps<TestType>(streams * 100'000 / slower)});
}

TEMPLATE_TEST_CASE("L1 L11 L14: a long random program reads the same at full length, also where that is slow",
                   "[.long]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  require_right<TestType>(roomy<TestType>, {.seed = 8, .operations = streams * 100'000});
}

TEMPLATE_TEST_CASE("L1 L11 L14: random programs of 8 threads that hand buffers to each other read what they should", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(roomy<TestType>);
  Exchanges exchanges;
  const std::vector<ProgramWindow> constants{RandomProgram<TestType>::constant(device.client(), 500),
                                             RandomProgram<TestType>::constant(device.client(), 20'000)};
  std::vector<std::string> failures(streams);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < streams; ++t)
    threads.emplace_back([&, t] {
      RandomProgram<TestType> program(device.client(), {.seed = 100 + t,
                                                        .operations = steps<TestType>(10'000 / slower),
                                                        .streams = 2,
                                                        .bytes = std::size_t{16} << 20U,
                                                        .allocations = 200});
      for (const ProgramWindow& constant : constants) program.share(constant);
      program.exchange_with_others([&, t, round = std::size_t{0}](std::vector<ProgramWindow> given) mutable {
        return exchanges.swap(t, round++, std::move(given));
      });
      failures[t] = program.run();
      if (!failures[t].empty()) exchanges.stop();
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) {
    INFO(failure);
    CHECK(failure.empty());
  }
}
