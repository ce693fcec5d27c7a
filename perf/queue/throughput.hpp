#pragma once

#include <coxswain/device_handle/service/completion.hpp>
#include <coxswain/perf/harness/process_cost.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/queue/clients.hpp>
#include <coxswain/perf/queue/lane.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

namespace cox::perf {

struct Load {
  unsigned producers = 1;
  std::uint64_t closures = 0;  ///< over all producers
  std::size_t capacity = 0;    ///< of the lane; 0: no bound
};

/// What the closures change. Only the lane's consumer touches it.
struct alignas(64) Tally {
  std::uint64_t expected = 0;
  std::uint64_t ran = 0;
  std::uint64_t sum = 0;
  std::chrono::steady_clock::time_point end;
  Completion complete;

  void add(std::uint64_t value) {
    sum += value;
    if (++ran != expected) return;
    end = std::chrono::steady_clock::now();
    complete.signal();
  }
};

/// A closure whose captures fill `Bytes` bytes.
template <std::size_t Bytes>
struct Adding {
  Tally* tally;
  std::array<std::uint64_t, Bytes / 8 - 1> values;

  void operator()() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t value : values) sum += value;
    tally->add(sum);
  }
};

/// From the start of the producers until the last closure ran: nanoseconds per closure, and CPU nanoseconds of the
/// producers per push. Throws std::runtime_error if a closure was lost or ran twice.
template <class L, std::size_t Bytes>
Sample throughput(const Load& load) {
  static_assert(sizeof(Adding<Bytes>) == Bytes);
  const std::uint64_t each = load.closures / load.producers;
  const auto lane = std::make_unique<L>(LaneOptions{.capacity = load.capacity});
  Tally tally;
  tally.expected = each * load.producers;
  std::vector<std::chrono::nanoseconds> cpu(load.producers);
  std::chrono::steady_clock::time_point start;
  {
    Clients producers(load.producers, [&](unsigned index) {
      const auto before = own_cpu_time();
      Adding<Bytes> adding{.tally = &tally, .values = {}};
      for (std::uint64_t i = 0; i < each; ++i) {
        adding.values.fill(i + index);
        lane->push(adding);
      }
      cpu[index] = own_cpu_time() - before;
    });
    start = std::chrono::steady_clock::now();
    producers.start();
  }
  tally.complete.wait(std::chrono::microseconds(20));
  lane->stop();

  const std::uint64_t pairs = each * (each - 1) / 2 * load.producers + each * load.producers * (load.producers - 1) / 2;
  if (tally.ran != tally.expected || tally.sum != pairs * (Bytes / 8 - 1)) {
    throw std::runtime_error("a closure was lost or ran twice");
  }
  std::chrono::nanoseconds pushing{0};
  for (const auto one : cpu) pushing += one;
  const auto closures = static_cast<double>(tally.expected);
  const std::chrono::duration<double, std::nano> whole = tally.end - start;
  return {whole.count() / closures, static_cast<double>(pushing.count()) / closures};
}

/// Mebibytes by which this process grew at its largest while the load ran. For a process that did nothing before.
template <class L, std::size_t Bytes>
Sample memory_growth(const Load& load) {
  const std::size_t before = resident_bytes();
  throughput<L, Bytes>(load);
  return {static_cast<double>(peak_resident_bytes() - before) / (1024.0 * 1024.0)};
}

}  // namespace cox::perf
