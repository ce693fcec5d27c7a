#pragma once

#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/tools/cox/stress/agenda.hpp>
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
#include <span>
#include <string>
#include <vector>

namespace cox::stress {

/// A communicator of the library with its lines. An error that ends one of its lines ends all of them, until the
/// communicator is renewed.
struct RoundGroup {
  RoundGroup(CommunicationId devices, DeviceSet set) : id(std::move(devices)), members(std::move(set)) {}

  const CommunicationId id;
  const DeviceSet members;  ///< By rank.
  std::mutex mutex;         ///< Locked before those of the lanes.
  std::condition_variable renewed;
  // guarded by mutex:
  std::size_t open = 0;                    ///< Rounds that have not ended.
  std::size_t held = 0;                    ///< Shutdowns and aborts in progress; while not 0, the group is not renewed.
  bool resting = false;                    ///< No new rounds until all have ended and the group is renewed.
  bool renewing = false;                   ///< A client is renewing the group; cleared by renewed().
  std::deque<std::string> abort_causes{};  ///< Of all aborts of the run.
};

/// The calls of one rank that have yet to be made, in order.
struct RoundLane {
  RoundLine* line = nullptr;
  std::size_t rank = 0;
  std::optional<std::size_t> device{};  ///< Index into Options::devices; empty: of another process, never called.
  std::mutex mutex;                     ///< Held during a call, so that calls are made in order.
  std::deque<std::shared_ptr<Round>> pending;  // guarded by mutex
  std::atomic<std::size_t> size{0};            ///< Of `pending`. Relaxed: a hint.
};

/// Rounds with the same order on all their ranks: the collectives of a communicator, or the transfers from one of
/// its devices to another.
struct RoundLine {
  RoundGroup* group = nullptr;
  DeviceSet devices;  ///< By rank, indices into Options::ranks(); for transfers: source, destination.
  bool transfers = false;
  std::deque<RoundLane> lanes;  ///< By rank.
  std::size_t own = 0;          ///< How many of them belong to this process.
  // guarded by group->mutex:
  std::uint64_t next = 1;
  /// Rounds from this one on have timed out.
  std::uint64_t broken_from = std::numeric_limits<std::uint64_t>::max();
};

/// All rounds of a run. Any thread.
class RoundBook {
 public:
  using Clock = Round::Clock;
  /// Timeout of collectives in runs that leave ranks out. A loaded machine needs a large part of it for complete
  /// rounds.
  static constexpr std::chrono::nanoseconds short_timeout = std::chrono::seconds(1);

  /// The most rounds that are open at a time with `clients` clients.
  [[nodiscard]] static std::size_t most_rounds(std::uint32_t clients) noexcept;

  /// `most_bytes`: the most bytes of a device that open rounds may use, unless a single round is larger.
  RoundBook(const Options& options, std::size_t most_bytes);
  RoundBook(const RoundBook&) = delete;
  RoundBook& operator=(const RoundBook&) = delete;

  [[nodiscard]] RoundLine& pick_line(Operation operation, Random& random);
  /// The collectives of all devices.
  [[nodiscard]] RoundLine& line_of_all() noexcept { return *collectives_.front(); }
  /// Null unless the run is a SharedRun.
  [[nodiscard]] Agenda* agenda() noexcept { return agenda_ ? &*agenda_ : nullptr; }
  [[nodiscard]] DeviceId device(std::size_t index) const { return options_.ranks()[index]; }
  /// Adds a result to the digest of the run, which does not depend on the order of the calls.
  void add_to_digest(const Round& round, std::size_t rank, std::size_t part, std::span<const std::byte> result);
  [[nodiscard]] std::uint64_t digest() const noexcept { return digest_.load(std::memory_order_relaxed); }
  /// Rounds that have been checked.
  [[nodiscard]] std::uint64_t checked() const noexcept { return checked_.load(std::memory_order_relaxed); }
  /// Whether the limits on open rounds and their bytes allow another round.
  [[nodiscard]] bool has_room(std::size_t bytes) const noexcept;
  /// Appends rounds of one line in order, each to the lane of every rank that takes part; false if the group rests.
  /// `rest`: the group rests from then on, without new rounds until it is renewed.
  [[nodiscard]] bool append(const std::vector<std::shared_ptr<Round>>& rounds, bool rest);
  /// Calls `call(round)`, which makes the calls of both ranks, if no other call of the line is pending or being made
  /// and the group does not rest; else false.
  template <class Call>
  [[nodiscard]] bool append_and_call(const std::shared_ptr<Round>& round, const Call& call);

  /// Picks a lane and makes its next call: call(round, rank). False if no call could be made.
  template <class Call>
  bool call_next(Random& random, const Call& call);
  /// A round whose calls have all been made, for the caller to check; null if there is none.
  [[nodiscard]] std::shared_ptr<Round> take_called(Random& random);
  /// The round was checked. Returns its group if the caller must renew it, else null. After a renewal the caller must
  /// call renewed(), also if it failed.
  [[nodiscard]] RoundGroup* ended(const Round& round);
  void renewed(RoundGroup& group);
  /// To be locked while a device is shut down or a communicator is aborted.
  [[nodiscard]] std::mutex& shutdowns() noexcept { return shutdowns_; }
  /// The device is about to be shut down: its groups rest, and their rounds may fail, until released(). Blocks while
  /// one of the groups is being renewed, because a renewal needs its devices.
  void shake(std::size_t device);
  /// A rank is about to abort the group: the group rests, and its open rounds may fail with that cause, until
  /// released(group). False if the group rests already.
  [[nodiscard]] bool begin_abort(RoundGroup& group, std::string cause);
  /// Whether all calls of the group's rounds have been made.
  [[nodiscard]] bool called_all(const RoundGroup& group);
  /// Ends what begin_abort() began. Returns whether the caller must renew the group.
  [[nodiscard]] bool released(RoundGroup& group);
  /// Whether all calls of the rounds of the device's groups have been made.
  [[nodiscard]] bool called_all(std::size_t device);
  /// Drops the calls left in the device's groups: those of the device, or with `of_others` those of the other ranks.
  void drop_calls(std::size_t device, bool of_others);
  /// Ends what shake() began. Returns the groups that the caller must renew.
  [[nodiscard]] std::vector<RoundGroup*> released(std::size_t device);
  /// The round timed out, although all its ranks took part: the rounds after it in its line time out, too.
  void broken(const Round& round);
  /// Whether a timeout of the round is justified: it, or an earlier round of its line, lacked ranks for too long.
  [[nodiscard]] bool may_time_out(const Round& round) const;

  [[nodiscard]] std::size_t open() const noexcept { return open_count_.load(std::memory_order_relaxed); }
  /// A client begins no more rounds. Returns whether other clients still do, which then complete all open rounds.
  bool leave() noexcept { return working_.fetch_sub(1, std::memory_order_acq_rel) > 1; }
  /// A violation about the oldest open round, if it has been open for `patience`.
  [[nodiscard]] std::optional<Violation> overdue(std::chrono::steady_clock::duration patience) const;
  /// How long after the first rank of a round the others may arrive; empty: no limit.
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
  std::atomic<std::uint32_t> working_;  // clients that begin rounds
  const std::optional<std::chrono::nanoseconds> timeout_;
  std::deque<RoundGroup> groups_;
  std::deque<RoundLine> lines_;
  std::vector<RoundLine*> collectives_;
  std::vector<RoundLine*> transfers_;
  std::vector<RoundLane*> lanes_;
  template <class F>
  void for_each_group_of(std::size_t device, const F& f);
  std::optional<Agenda> agenda_;
  std::atomic<std::uint64_t> digest_{0};  // relaxed: a sum
  std::atomic<std::uint64_t> checked_{0};
  std::atomic<std::size_t> open_count_{0};
  std::atomic<std::size_t> open_bytes_{0};
  std::mutex shutdowns_;                        // locked before all others
  mutable std::mutex mutex_;                    // locked after all others
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
  for (std::size_t rank = 0; rank < line.own; ++rank) called(round);
  return true;
}

}  // namespace cox::stress
