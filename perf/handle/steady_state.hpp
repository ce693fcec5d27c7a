#pragma once

#include <coxswain/perf/handle/allocation_count.hpp>
#include <coxswain/perf/harness/process_cost.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/queue/lane.hpp>
#include <coxswain/perf/queue/round_trip.hpp>
#include <coxswain/perf/queue/throughput.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

namespace cox::perf {

/// Submits `count` closures with captures of `Bytes` bytes, at most `outstanding` of them unfinished at a time.
template <std::size_t Bytes, class L>
void submit_in_bursts(L& lane, unsigned count, unsigned outstanding) {
  std::array<std::byte, Bytes> payload{};
  for (unsigned done = 0; done < count; done += outstanding) {
    for (unsigned i = 0; i < outstanding; ++i) lane.push([payload] { asm volatile("" ::"m"(payload)); });
    call(lane, [] {});
  }
}

/// Heap blocks taken per submit once the lane has settled.
template <class L, std::size_t Bytes>
Sample allocations_per_submit(unsigned outstanding) {
  constexpr unsigned submits = 20'000;
  const auto lane = std::make_unique<L>(LaneOptions{});
  submit_in_bursts<Bytes>(*lane, submits, outstanding);
  std::uint64_t taken = 0;
  {
    const AllocationCount count;
    for (unsigned i = 0; i < submits; i += outstanding) submit_in_bursts<Bytes>(*lane, outstanding, outstanding);
    taken = count.so_far();
  }
  lane->stop();
  return {static_cast<double>(taken) / submits};
}

/// Until the lane's consumer has slept after the work there was, and has kept of its memory what it keeps at rest.
template <class L>
void come_to_rest(L& lane) {
  constexpr std::chrono::milliseconds long_enough{10};
  std::this_thread::sleep_for(long_enough);
  if constexpr (requires { lane.handle().statistics().wakes; }) {
    const std::uint64_t wakes = lane.handle().statistics().wakes;
    for (call(lane, [] {}); lane.handle().statistics().wakes == wakes; call(lane, [] {})) {
      std::this_thread::sleep_for(long_enough);  // it was not asleep
    }
  }
}

/// Kibibytes by which this process is larger once 1,000,000 closures by four clients ran and the lane is at rest, and
/// what the lane itself says it holds. For a process that did nothing before.
template <class L>
Sample memory_at_rest(std::size_t capacity) {
  const std::size_t before = resident_bytes();
  const auto lane = std::make_unique<L>(LaneOptions{.capacity = capacity});
  {
    Clients clients(4, [&](unsigned) {
      for (int i = 0; i < 250'000; ++i) lane->push([i] { asm volatile("" ::"m"(i)); });
      call(*lane, [] {});
    });
  }
  call(*lane, [] {});
  come_to_rest(*lane);
  const double growth = static_cast<double>(resident_bytes()) - static_cast<double>(before);
  double own_figure = 0;
  if constexpr (requires { lane->handle().statistics().queue_bytes; }) {
    own_figure = static_cast<double>(lane->handle().statistics().queue_bytes);
  }
  lane->stop();
  return {growth / 1024, own_figure / 1024};
}

}  // namespace cox::perf
