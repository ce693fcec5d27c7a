// L3 and L8: prompt when there is work, free when there is none. L13: nothing is left after the last shutdown.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <dirent.h>

#include <array>
#include <fstream>
#include <map>
#include <sstream>

using namespace contract;

namespace {

struct ThreadFigures {
  std::string name;
  long cpu_ticks = 0;
  long voluntary_switches = 0;
};

std::map<std::string, ThreadFigures> threads_of_process() {
  std::map<std::string, ThreadFigures> threads;
  DIR* const directory = opendir("/proc/self/task");
  while (const dirent* const entry = readdir(directory)) {
    const std::string id = entry->d_name;
    const std::string path = "/proc/self/task/" + id;
    ThreadFigures figures;
    if (std::ifstream name(path + "/comm"); id[0] == '.' || !std::getline(name, figures.name)) continue;
    std::ifstream status(path + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("voluntary_ctxt_switches:")) figures.voluntary_switches = std::stol(line.substr(24));
    }
    std::string stat;
    std::ifstream stat_file(path + "/stat");
    std::getline(stat_file, stat);
    std::istringstream fields(stat.substr(stat.rfind(')') + 2));
    std::string field;
    for (int i = 3; i <= 15 && fields >> field; ++i) {
      if (i >= 14) figures.cpu_ticks += std::stol(field);
    }
    threads[id] = figures;
  }
  closedir(directory);
  return threads;
}

std::optional<ThreadFigures> thread_named(const std::string& name) {
  for (const auto& [id, figures] : threads_of_process()) {
    if (figures.name == name) return figures;
  }
  return std::nullopt;
}

cox::DeviceThreadOptions spinning_for(std::chrono::nanoseconds spin) {
  cox::DeviceThreadOptions options;
  options.spin = spin;
  return options;
}

/// Lone submits, each awaited before the next, by whoever's turn it is.
void lone_submits(int threads, int count, const cox::DeviceThreadOptions& options) {
  const TestDevice device(options);
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  std::vector<std::thread> clients;
  std::atomic<int> lost{0};
  for (int t = 0; t < threads; ++t) {
    clients.emplace_back([&, handle]() mutable {
      for (int i = 0; i < count && lost == 0; ++i) {
        std::atomic<bool> ran{false};
        handle.submit([&](Alpha&) { ran.store(true, std::memory_order_release); });
        if (!eventually([&] { return ran.load(std::memory_order_acquire); })) {
          ++lost;
          handle.submit_blocking([](Alpha&) {});  // gets the lost one going, so that `ran` may die
        }
      }
    });
  }
  for (auto& client : clients) client.join();
  CHECK(lost == 0);
  CHECK(conserved(at_rest(handle)));
}

}  // namespace

TEST_CASE("L3: of 10^5 lone submits to a thread that parks at once none waits for another", "[L3]") {
  lone_submits(1, scaled(100'000), spinning_for(0ns));
}

TEST_CASE("L3: lone submits of two threads meet every phase of parking", "[L3]") {
  lone_submits(2, scaled(50'000), spinning_for(0ns));
  lone_submits(2, scaled(20'000), spinning_for(2us));
}

TEST_CASE("L3: a lone submit to a parked thread runs, also after many parks", "[L3]") {
  const TestDevice device(spinning_for(0ns));
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  for (int i = 0; i < scaled(2000); ++i) {
    const auto parks = handle.statistics().parks;
    const Gate ran;
    handle.submit([ran](Alpha&) { ran.open(); });
    REQUIRE(ran.opens_within(never));
    REQUIRE(eventually([&] { return handle.statistics().parks > parks; }));
  }
}

TEST_CASE("L3: blocking calls of four threads to a thread that parks at once all return", "[L3]") {
  const TestDevice device(spinning_for(0ns));
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  std::vector<std::thread> clients;
  for (int t = 0; t < 4; ++t) {
    clients.emplace_back([handle]() mutable {
      for (int i = 0; i < scaled(20'000); ++i) handle.submit_blocking([](Alpha& alpha) { ++alpha.value; });
    });
  }
  for (auto& client : clients) client.join();
  CHECK(handle.submit_blocking([](Alpha& alpha) { return alpha.value; }) == 4 * scaled(20'000));
}

TEST_CASE("L8: an idle device thread is parked: it uses no processor time and is not switched to", "[L8]") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  handle.submit_blocking([](Alpha&) {});
  const std::string name = "cox-d0-" + std::to_string(device.id().index);
  REQUIRE(thread_named(name).has_value());
  REQUIRE(eventually([&] { return handle.statistics().parks > handle.statistics().wakes; }));
  // Once parked, its figures stand still; watched for as long as another thread computes.
  const auto end = std::chrono::steady_clock::now() + 500ms;
  const auto before_idle = thread_named(name);
  while (std::chrono::steady_clock::now() < end) {
  }
  const auto after_idle = thread_named(name);
  CHECK(after_idle->voluntary_switches - before_idle->voluntary_switches <= 1);
  CHECK(after_idle->cpu_ticks - before_idle->cpu_ticks <= 1);
}

TEST_CASE("L8: the spin before parking is bounded by its option", "[L8]") {
  for (const auto spin : {0ns, std::chrono::nanoseconds(50us), std::chrono::nanoseconds(5ms)}) {
    const TestDevice device(spinning_for(spin));
    auto handle = cox::DeviceHandle<Alpha>::get(device);
    handle.submit_blocking([](Alpha&) {});
    CHECK(eventually([&] { return handle.statistics().parks > handle.statistics().wakes; }));
  }
}

TEST_CASE("A service may have its thread look for work longer than its options say", "[L8]") {
  const TestDevice device(spinning_for(0ns));
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  handle.submit_blocking([](Alpha&) { cox::DeviceThread::current()->spin_at_least(1h); });
  REQUIRE(eventually([&] { return handle.statistics().parks > handle.statistics().wakes; }));  // once more as before
  handle.submit_blocking([](Alpha&) {});
  const auto parks = handle.statistics().parks;
  for (int i = 0; i < 100; ++i) {
    const auto end = std::chrono::steady_clock::now() + 200us;
    while (std::chrono::steady_clock::now() < end) {
    }
    handle.submit_blocking([](Alpha&) {});
  }
  CHECK(handle.statistics().parks == parks);
}

TEST_CASE("A device's threads carry its name", "[L8]") {
  const TestDevice device;
  static_cast<void>(cox::DeviceHandle<Alpha>::get(device));
  static_cast<void>(cox::DeviceHandle<Up>::get(device));
  const std::string index = std::to_string(device.id().index);
  CHECK(eventually([&] { return thread_named("cox-d0-" + index).has_value(); }));
  CHECK(eventually([&] { return thread_named("cox-u0-" + index).has_value(); }));
}

TEST_CASE("L13: after shutdown_all the process has as many threads as before", "[L13]") {
  {
    const TestDevice device;  // the first one starts what the process keeps
    cox::DeviceHandle<Alpha>::get(device).submit_blocking([](Alpha&) {});
  }
  cox::shutdown_all();
  const auto baseline = threads_of_process().size();
  for (int round = 0; round < 5; ++round) {
    const TestDevice devices[4];
    for (const auto& device : devices) cox::DeviceHandle<Alpha>::get(device).submit_blocking([](Alpha&) {});
    CHECK(threads_of_process().size() >= baseline + 4);
    CHECK(cox::shutdown_all() == cox::ShutdownOutcome::Drained);
    CHECK(eventually([&] { return threads_of_process().size() == baseline; }, 5s));
  }
}

TEST_CASE("L7: clients that come and go leave no memory behind", "[L7]") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  for (int round = 0; round < 10; ++round) {
    std::vector<std::thread> clients;
    for (int t = 0; t < 10; ++t) {
      clients.emplace_back([handle]() mutable {
        for (int i = 0; i < scaled(1000); ++i)
          handle.submit([big = std::array<char, 200>{}](Alpha&) { static_cast<void>(big); });
      });
    }
    for (auto& client : clients) client.join();
  }
  handle.submit_blocking([](Alpha&) {});
  CHECK(eventually([&] { return handle.statistics().queue_bytes < 1U << 20U; }, 5s));
}
