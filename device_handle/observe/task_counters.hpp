#pragma once

#include <coxswain/device_handle/base/histogram.hpp>
#include <coxswain/device_handle/base/statistics.hpp>
#include <coxswain/device_handle/queue/task.hpp>

#include <array>
#include <atomic>
#include <cstdint>

namespace cox {

/// Counters of one device thread. Only that thread writes (hence no read-modify-write instruction), except for stalls;
/// any thread reads. All accesses are relaxed, because no counter publishes other data.
class TaskCounters {
 public:
  void count_outcome(Outcome outcome) noexcept { bump(outcomes_[static_cast<std::size_t>(outcome)]); }
  void count_inline() noexcept { bump(accepted_inline_); }
  void count_park() noexcept { bump(parks_); }
  void count_wake() noexcept { bump(wakes_); }
  void count_stall() noexcept { stalls_.fetch_add(1, std::memory_order_relaxed); }  // called by the stall watcher

  /// Records one timed task, which stands for `tasks` tasks. Times are in stamp ticks.
  void record_times(std::uint64_t wait, std::uint64_t run, std::uint64_t tasks) noexcept {
    wait_.record(wait, tasks);
    run_.record(run, tasks);
  }

  /// `queued`: number of tasks accepted through the mailbox.
  [[nodiscard]] Statistics snapshot(std::uint64_t queued, double nanoseconds_per_tick) const noexcept {
    Statistics s;
    s.completed = read(outcomes_[static_cast<std::size_t>(Outcome::Completed)]);
    s.failed = read(outcomes_[static_cast<std::size_t>(Outcome::Failed)]);
    s.cancelled = read(outcomes_[static_cast<std::size_t>(Outcome::Cancelled)]);
    s.expired = read(outcomes_[static_cast<std::size_t>(Outcome::Expired)]);
    s.accepted = queued + read(accepted_inline_);
    s.parks = read(parks_);
    s.wakes = read(wakes_);
    s.stalls = read(stalls_);
    const std::uint64_t ended = s.completed + s.failed + s.cancelled + s.expired;
    s.depth = s.accepted > ended ? static_cast<std::size_t>(s.accepted - ended) : 0;
    s.wait = Histogram(wait_, nanoseconds_per_tick);
    s.run = Histogram(run_, nanoseconds_per_tick);
    return s;
  }

 private:
  using Count = std::atomic<std::uint64_t>;

  static void bump(Count& count) noexcept {
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  static std::uint64_t read(const Count& count) noexcept { return count.load(std::memory_order_relaxed); }

  std::array<Count, 4> outcomes_{};
  Count accepted_inline_{0};
  Count parks_{0};
  Count wakes_{0};
  Count stalls_{0};
  LiveHistogram wait_;
  LiveHistogram run_;
};

}  // namespace cox
