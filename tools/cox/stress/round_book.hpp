#pragma once

#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/tools/cox/stress/device_sets.hpp>
#include <coxswain/tools/cox/stress/options.hpp>
#include <coxswain/tools/cox/stress/round.hpp>
#include <coxswain/tools/cox/stress/violation.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace cox::stress {

/// A communicator as the library keeps it: what ends one of its lines ends all of them, until it is renewed.
struct RoundGroup {
  RoundGroup(CommunicationId devices, DeviceSet set) : id(std::move(devices)), members(std::move(set)) {}

  const CommunicationId id;
  const DeviceSet members;  ///< By rank.
  std::mutex mutex;         ///< Before those of the lanes.
  std::condition_variable renewed;
  // guarded by mutex:
  std::size_t open = 0;                    ///< Rounds that have not ended.
  std::size_t held = 0;                    ///< While not 0 it is not renewed.
  bool resting = false;                    ///< No new rounds until all have ended and it is renewed.
  bool renewing = false;                   ///< Who must renew it is doing so: until renewed().
  std::deque<std::string> abort_causes{};  ///< Of all aborts of the run.
};

/// The calls of one rank that have yet to be made, in order.
struct RoundLane {
  RoundLine* line = nullptr;
  std::size_t rank = 0;
  std::mutex mutex;                            ///< Held while the first call is made: they come in order.
  std::deque<std::shared_ptr<Round>> pending;  // guarded by mutex
  std::atomic<std::size_t> size{0};            ///< Of it. Relaxed: a hint.
};

/// Rounds that come in one order on all their ranks: the collectives of a communicator, or the transfers from one of
/// its devices to another.
struct RoundLine {
  RoundGroup* group = nullptr;
  DeviceSet devices;  ///< By rank; of transfers: from, to.
  bool transfers = false;
  std::deque<RoundLane> lanes;  ///< By rank.
  // guarded by group->mutex:
  std::uint64_t next = 1;
  /// Rounds from this one on have timed out.
  std::uint64_t broken_from = std::numeric_limits<std::uint64_t>::max();
};

/// All rounds of a run. Any thread.
class RoundBook {
 public:
  using Clock = Round::Clock;
  /// Of collectives, where ranks are left out. A loaded machine takes a good part of it for those that are complete.
  static constexpr std::chrono::nanoseconds short_timeout = std::chrono::seconds(1);

  /// Rounds that are open at a time, at most, with so many clients.
  [[nodiscard]] static std::size_t most_rounds(std::uint32_t clients) noexcept;

  /// At most so many bytes of a device are in open rounds, unless one round alone is larger.
  RoundBook(const Options& options, std::size_t most_bytes);
  RoundBook(const RoundBook&) = delete;
  RoundBook& operator=(const RoundBook&) = delete;

  [[nodiscard]] RoundLine& pick_line(Operation operation, Random& random);
  /// There are no more open rounds than is good.
  [[nodiscard]] bool has_room(std::size_t bytes) const noexcept;
  /// Puts rounds of one line behind each other, each in the lane of every rank that comes; false if the line rests,
  /// or something of it is open and `alone` is wanted. `rest`: no more until the group is renewed.
  [[nodiscard]] bool append(const std::vector<std::shared_ptr<Round>>& rounds, bool rest);
  /// Has `call(round)` make both calls of it, with nothing else pending on its line; false if there is.
  template <class Call>
  [[nodiscard]] bool append_and_call(const std::shared_ptr<Round>& round, const Call& call);

  /// Picks a lane and makes its next call: call(round, rank). False if none could be made.
  template <class Call>
  bool call_next(Random& random, const Call& call);
  /// A round whose calls have all been made, for the caller to check; null if there is none.
  [[nodiscard]] std::shared_ptr<Round> take_called(Random& random);
  /// The round was checked. Returns its group if the caller must renew it, and say renewed() then, whatever happens.
  [[nodiscard]] RoundGroup* ended(const Round& round);
  void renewed(RoundGroup& group);
  /// Held while a device is shut down.
  [[nodiscard]] std::mutex& shutdowns() noexcept { return shutdowns_; }
  /// The device is about to be shut down: its groups rest, and their rounds may fail, until released(). Waits while
  /// one of them is being renewed, which needs its devices.
  void shake(std::size_t device);
  /// A rank is about to abort the group: it rests, and its open rounds may fail with that cause, until released(group).
  /// False if it rests already.
  [[nodiscard]] bool begin_abort(RoundGroup& group, std::string cause);
  /// No calls are left of the group's rounds.
  [[nodiscard]] bool called_all(const RoundGroup& group);
  /// Returns whether the caller must renew the group.
  [[nodiscard]] bool released(RoundGroup& group);
  /// No calls are left of the rounds that were shaken.
  [[nodiscard]] bool called_all(std::size_t device);
  /// Drops what calls are left of them, of the ranks of that device or of the other ranks.
  void drop_calls(std::size_t device, bool of_others);
  /// Returns the groups that the caller must renew.
  [[nodiscard]] std::vector<RoundGroup*> released(std::size_t device);
  /// The round timed out, though no rank was left out: rounds after it have, too.
  void broken(const Round& round);
  /// A timeout of the round is what must be: one before it in its line had too few ranks for too long.
  [[nodiscard]] bool may_time_out(const Round& round) const;

  [[nodiscard]] std::size_t open() const noexcept { return open_count_.load(std::memory_order_relaxed); }
  /// A client begins no more rounds. Returns whether others still do, who then see to it that all rounds end.
  bool leave() noexcept { return working_.fetch_sub(1, std::memory_order_acq_rel) > 1; }
  /// About a round that has not ended for so long.
  [[nodiscard]] std::optional<Violation> overdue(std::chrono::steady_clock::duration patience) const;
  /// How long after its first rank the others of a round may come; nothing: as long as it takes.
  [[nodiscard]] const std::optional<std::chrono::nanoseconds>& timeout() const noexcept { return timeout_; }
  [[nodiscard]] std::deque<RoundGroup>& groups() noexcept { return groups_; }

 private:
  void open(const std::shared_ptr<Round>& round, RoundLine& line);
  [[nodiscard]] static bool is_callable(const RoundLane& lane);
  void called(const std::shared_ptr<Round>& round);
  [[nodiscard]] static std::size_t bytes_of(const Round& round);

  const Options& options_;
  const std::size_t most_bytes_;
  const std::size_t most_rounds_;
  std::atomic<std::uint32_t> working_;  // clients
  const std::optional<std::chrono::nanoseconds> timeout_;
  std::deque<RoundGroup> groups_;
  std::deque<RoundLine> lines_;
  std::vector<RoundLine*> collectives_;
  std::vector<RoundLine*> transfers_;
  std::vector<RoundLane*> lanes_;
  template <class F>
  void for_each_group_of(std::size_t device, const F& f);
  std::atomic<std::size_t> open_count_{0};
  std::atomic<std::size_t> open_bytes_{0};
  std::mutex shutdowns_;                        // before all others
  mutable std::mutex mutex_;                    // after all others
  std::vector<std::shared_ptr<Round>> open_;    // guarded by mutex_, oldest first
  std::vector<std::shared_ptr<Round>> called_;  // guarded by mutex_
};

template <class Call>
bool RoundBook::call_next(Random& random, const Call& call) {
  const auto start = static_cast<std::size_t>(random.below(lanes_.size()));
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    RoundLane& lane = *lanes_[(start + i) % lanes_.size()];
    if (lane.size.load(std::memory_order_relaxed) == 0) continue;
    const std::unique_lock lock(lane.mutex, std::try_to_lock);
    if (!lock.owns_lock() || !is_callable(lane)) continue;
    const std::shared_ptr<Round> round = std::move(lane.pending.front());
    lane.pending.pop_front();
    lane.size.store(lane.pending.size(), std::memory_order_relaxed);
    call(*round, lane.rank);
    called(round);
    return true;
  }
  return false;
}

template <class Call>
bool RoundBook::append_and_call(const std::shared_ptr<Round>& round, const Call& call) {
  RoundLine& line = *round->line;
  const std::lock_guard lock(line.group->mutex);
  if (line.group->resting) return false;
  std::vector<std::unique_lock<std::mutex>> locks;
  for (RoundLane& lane : line.lanes) {
    locks.emplace_back(lane.mutex, std::try_to_lock);
    if (!locks.back().owns_lock() || !lane.pending.empty()) return false;
  }
  open(round, line);
  call(*round);
  for (std::size_t rank = 0; rank < line.lanes.size(); ++rank) called(round);
  return true;
}

}  // namespace cox::stress
