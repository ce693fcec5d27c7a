#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/servers/host/random_program.hpp>
#include <coxswain/tests/support/catch.hpp>

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
using cox::HostOptions;

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr std::size_t slower = 20;
#elif defined(__SANITIZE_ADDRESS__)
constexpr std::size_t slower = 8;
#else
constexpr std::size_t slower = 1;
#endif

constexpr std::size_t streams = 8;
constexpr HostOptions roomy{.device_count = 1, .threads_per_device = 4, .memory_capacity = std::size_t{512} << 20U};
// Granules of 4 KiB: two for each of 150 buffers, 1 MiB for the buffers, and 1.5 MiB left for the next one.
constexpr HostOptions tight{.device_count = 1, .threads_per_device = 4, .memory_capacity = std::size_t{4} << 20U};
constexpr RandomProgram::Options in_tight_memory{
    .bytes = std::size_t{1} << 20U, .allocations = 150, .largest = std::size_t{64} << 10U};

void require_right(const HostOptions& host_options, RandomProgram::Options options) {
  OpenHost host(host_options);
  RandomProgram program(host.client(), options);
  const std::string failure = program.run();
  INFO(failure);
  REQUIRE(failure.empty());
  REQUIRE(host.client().memory_usage().number_allocs == 0);
  REQUIRE(host.client().memory_usage().bytes_in_use == 0);
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

TEST_CASE("L1 L11: random programs on 8 streams read what they would read one step after the other") {
  for (const std::uint64_t seed : {1U, 2U, 3U})
    require_right(roomy, {.seed = seed, .operations = streams * 5000 / slower});
}

TEST_CASE("L11: random programs read the same where all memory is used again and again") {
  for (const std::uint64_t seed : {4U, 5U, 6U}) {
    RandomProgram::Options options = in_tight_memory;
    options.seed = seed;
    options.operations = streams * 5000 / slower;
    require_right(tight, options);
  }
}

TEST_CASE("L1 L11: a long random program reads what it would read one step after the other") {
  require_right(roomy, {.seed = 7, .operations = streams * 100'000 / slower});
}

TEST_CASE("L1 L11: a long random program reads the same at full length, also where that is slow", "[.long]") {
  require_right(roomy, {.seed = 8, .operations = streams * 100'000});
}

TEST_CASE("L1 L11: random programs of 8 threads that hand buffers to each other read what they should") {
  OpenHost host(roomy);
  Exchanges exchanges;
  const std::vector<ProgramWindow> constants{RandomProgram::constant(host.client(), 500),
                                             RandomProgram::constant(host.client(), 20'000)};
  std::vector<std::string> failures(streams);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < streams; ++t)
    threads.emplace_back([&, t] {
      RandomProgram program(host.client(), {.seed = 100 + t,
                                            .operations = 10'000 / slower,
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
