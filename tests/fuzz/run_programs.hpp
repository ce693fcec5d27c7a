#pragma once

#include <coxswain/tests/fuzz/options.hpp>
#include <coxswain/tests/fuzz/program.hpp>
#include <coxswain/tests/fuzz/watchdog.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace cox::fuzz {

/// Faults in the middle of programs, and what programs leave behind.
struct Machine {
  std::function<void(std::uint64_t seed)> plan_fault = [](std::uint64_t) {};  ///< the devices are open
  std::function<bool()> has_faulted = [] { return false; };
  enum class Fault { None, OfGpus, OfCall };
  /// The devices are shut down: makes the GPUs whole again. Returns what had happened.
  std::function<Fault()> mend = [] { return Fault::None; };
  std::function<std::string()> undestroyed_objects{};
};

namespace detail {

using Clock = std::chrono::steady_clock;

/// Prints differences, those of other threads too.
class Report {
 public:
  void add(const History& history, const std::string& what) {
    const std::lock_guard lock(mutex_);
    std::fprintf(stderr, "DIFFERENCE: %s\n%s\n", what.c_str(), history.text().c_str());
    found_ = true;
  }
  [[nodiscard]] bool found() const {
    const std::lock_guard lock(mutex_);
    return found_;
  }

 private:
  mutable std::mutex mutex_;
  bool found_ = false;
};

struct Totals {
  std::size_t programs = 0;
  std::size_t operations = 0;
  std::size_t refused = 0;  ///< allocations
  std::size_t faults = 0;
};

// Programs of one moment, each on its own thread. They share the devices.
template <class Backend>
void run_together(const Options& options, std::uint64_t seed, const Machine& machine, Watchdog& watchdog,
                  Report& report, Totals& totals) {
  World<Backend> world(options.tight, options.faults != Options::Faults::None);
  if (options.faults != Options::Faults::None) machine.plan_fault(seed);
  std::vector<std::shared_ptr<History>> histories;
  for (std::size_t i = 0; i < options.threads; ++i)
    histories.push_back(std::make_shared<History>(seed + i, options.shown));
  watchdog.watch({histories.begin(), histories.end()});
  std::vector<std::thread> threads;
  std::mutex mutex;
  for (const auto& history : histories)
    threads.emplace_back([&, history] {
      try {
        Program<Backend> program(world, history);
        try {
          program.run(options.length, machine.has_faulted, options.faults == Options::Faults::Gpus);
        } catch (const std::exception& error) {
          report.add(*history, error.what());
        }
        const std::lock_guard lock(mutex);
        totals.refused += program.refused();
        totals.operations += history->number();
      } catch (const std::exception& error) {
        report.add(*history, error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  watchdog.watch({});
  totals.programs += options.threads;
}

}  // namespace detail

/// Runs programs until there are enough operations or the time is up, or one differs. Returns the exit code.
template <class Backend>
int run_programs(const Options& options, const Machine& machine) {
  using namespace detail;
  Watchdog watchdog(std::chrono::seconds(options.patience));
  Report report;
  Totals totals;
  const auto begin = Clock::now();
  const auto is_over = [&] {
    return totals.operations >= options.operations ||
           (options.seconds != 0 && Clock::now() - begin >= std::chrono::seconds(options.seconds));
  };
  std::uint64_t seed = options.seed;
  for (; !is_over() && !report.found(); seed += options.threads) {
    run_together<Backend>(options, seed, machine, watchdog, report, totals);
    if (report.found()) break;
    const Machine::Fault fault = machine.mend();
    if (fault != Machine::Fault::None) ++totals.faults;
    if (fault == Machine::Fault::OfGpus) continue;  // what the driver has made is gone with them
    if (const std::string left = machine.undestroyed_objects(); !left.empty()) {
      std::fprintf(stderr, "DIFFERENCE: seed %llu: %s\n", static_cast<unsigned long long>(seed), left.c_str());
      return 1;
    }
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf(
      "%s: %s, %s memory, %zu threads: %zu operations of %zu programs, seeds %llu to %llu, %zu refused "
      "allocations, %zu faults, %.0f s\n",
      report.found() ? "DIFFERENT" : "as expected", options.server.c_str(), options.tight ? "tight" : "wide",
      options.threads, totals.operations, totals.programs, static_cast<unsigned long long>(options.seed),
      static_cast<unsigned long long>(seed), totals.refused, totals.faults, seconds);
  return report.found() ? 1 : 0;
}

}  // namespace cox::fuzz
