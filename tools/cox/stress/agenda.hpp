#pragma once

#include <coxswain/tools/cox/stress/options.hpp>
#include <coxswain/tools/cox/stress/program.hpp>

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>

namespace cox::stress {

/// The rounds of a SharedRun: a function of the seed and the number alone. All processes begin them in the order of
/// numbers, each those of which it has ranks. The first round of each batch is a vote of all ranks: whether a process
/// wants to end the run. A batch begins when the vote of the batch before it has ended, so all processes end the run
/// with the same round. Any thread.
class Agenda {
 public:
  static constexpr std::uint64_t batch = 64;

  /// Precondition: options.shared.
  explicit Agenda(const Options& options);

  [[nodiscard]] static bool is_vote(std::uint64_t number) noexcept { return number % batch == 0; }
  [[nodiscard]] Plan plan(std::uint64_t number) const noexcept;

  /// Calls begin(number) for the next rounds, in order, until it returns true: this process has a rank of that round.
  /// Returns false if no round could begin: the batch waits for a vote, or the run ends.
  template <class Begin>
  bool begin_next(const Begin& begin) {
    const std::lock_guard lock(mutex_);
    while (next_ < granted_)
      if (begin(next_++)) return true;
    return false;
  }

  /// The vote with that number has ended.
  void decide(std::uint64_t number, bool stop);
  /// This process votes for the end of the run from now on.
  void request_stop() noexcept { wants_stop_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool wants_stop() const noexcept { return wants_stop_.load(std::memory_order_relaxed); }
  /// All rounds of the run have begun in this process.
  [[nodiscard]] bool is_over() const;
  /// They are all that the options name, not fewer because a process has ended the run.
  [[nodiscard]] bool is_complete() const;

 private:
  const Options& options_;
  const std::uint64_t seed_;
  const Mix mix_;
  std::atomic<bool> wants_stop_{false};  // relaxed: guards nothing
  mutable std::mutex mutex_;
  std::uint64_t next_ = 0;                                         // guarded by mutex_, as all below
  std::uint64_t end_ = std::numeric_limits<std::uint64_t>::max();  // of the run
  std::uint64_t granted_ = 0;                                      // rounds before it may begin
};

}  // namespace cox::stress
