#pragma once

#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/queue/clients.hpp>
#include <coxswain/perf/queue/lane.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

namespace cox::perf {

/// Two producers push in turn and hand the turn over through an atomic. Returns how many closures ran after one that
/// was pushed later (L1 asks for none).
template <class L>
Sample inversions(std::uint64_t hand_offs) {
  struct Seen {
    std::uint64_t latest = 0;
    std::uint64_t inversions = 0;
  } seen;
  const auto lane = std::make_unique<L>(LaneOptions{});
  alignas(64) std::atomic<std::uint64_t> turn{0};
  {
    Clients clients(2, [&](unsigned index) {
      for (std::uint64_t mine = index; mine < hand_offs; mine += 2) {
        for (unsigned spins = 1; turn.load(std::memory_order_acquire) != mine; ++spins) {
          if (spins % 256 == 0) std::this_thread::yield();
          SystemPlatform::pause();
        }
        lane->push([&seen, mine] {
          if (mine < seen.latest) ++seen.inversions;
          if (mine > seen.latest) seen.latest = mine;
        });
        turn.store(mine + 1, std::memory_order_release);
      }
    });
  }
  lane->stop();
  return {static_cast<double>(seen.inversions)};
}

}  // namespace cox::perf
