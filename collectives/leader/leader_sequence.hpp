#pragma once

#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cox::detail::world {

/// Identifies a sequence for the leader. Never reused; 0 is none.
using SequenceId = std::uint64_t;

/// Identifies an operation for the leader.
struct OperationId {
  SequenceId sequence = 0;
  std::uint64_t operation = 0;

  friend constexpr auto operator<=>(OperationId, OperationId) = default;
};

/// A process that takes part in a sequence.
struct SequenceMember {
  std::uint16_t process = 0;
  bool is_open = false;         ///< The process has opened the sequence.
  std::uint64_t number = 0;     ///< That the process gave the sequence.
  std::uint64_t asked = 0;      ///< The last operation that the process has asked or refused.
  std::uint64_t completed = 0;  ///< The process has completed all operations up to this one.
  std::chrono::milliseconds timeout{0};
};

/// An operation that is neither released nor refused, or that is refused and not yet asked by all members.
struct PendingOperation {
  using Time = std::chrono::steady_clock::time_point;

  struct Wait {
    OperationId operation;
    std::uint16_t process;  ///< Which process waits for it.
  };
  struct Refusal {
    CollectiveError::Kind kind;
    std::string text;
  };

  std::size_t asked = 0;                    ///< Number of members that have asked or refused it.
  std::uint16_t process = 0;                ///< The first one of them.
  Time deadline{};                          ///< When the operation is overdue.
  std::vector<std::byte> fingerprint = {};  ///< Of the first process.
  std::string description = {};             ///< Of the first process.
  std::vector<Wait> awaited = {};           ///< Operations that were unresolved when it was asked.
  std::optional<Refusal> refusal = {};
};

/// The operations of one sequence of an instance. They are resolved in order: each is released or refused.
///
///     first()                         next()             last()
///     | refused, not asked by all yet | not resolved     |
///
/// From end() on, all operations are broken. A value: copies are independent.
class LeaderSequence {
 public:
  static constexpr std::uint64_t endless = std::numeric_limits<std::uint64_t>::max();

  LeaderSequence(SequenceId id, std::uint64_t instance, Direction direction,
                 const std::vector<std::uint16_t>& processes);

  [[nodiscard]] SequenceId id() const noexcept { return id_; }
  [[nodiscard]] std::uint64_t instance() const noexcept { return instance_; }
  [[nodiscard]] Direction direction() const noexcept { return direction_; }
  /// Sorted by process.
  [[nodiscard]] std::vector<SequenceMember>& members() noexcept { return members_; }
  [[nodiscard]] const std::vector<SequenceMember>& members() const noexcept { return members_; }
  /// members().size() if the process is none of them.
  [[nodiscard]] std::size_t index_of(std::uint16_t process) const noexcept;

  [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
  /// The first operation that is neither released nor refused.
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }
  [[nodiscard]] std::uint64_t last() const noexcept { return first_ + operations_.size() - 1; }
  /// The first operation that is broken; `endless` if none is.
  [[nodiscard]] std::uint64_t end() const noexcept { return end_; }
  /// Whether other operations need not wait for this one any more: it and all earlier ones are released, refused or
  /// broken. (Processes end them in this order.)
  [[nodiscard]] bool is_resolved(std::uint64_t operation) const noexcept { return operation < next_ || next_ == end_; }
  /// Whether all operations before end() are resolved, and known to all members.
  [[nodiscard]] bool is_finished() const noexcept { return next_ == end_ && operations_.empty(); }

  /// nullptr if no member has asked it, or all members know that it is resolved.
  [[nodiscard]] PendingOperation* find(std::uint64_t operation) noexcept;
  [[nodiscard]] const PendingOperation* find(std::uint64_t operation) const noexcept;
  /// The next() operation if at least one member has asked it, and it is not broken.
  [[nodiscard]] PendingOperation* find_next() noexcept { return next_ < end_ ? find(next_) : nullptr; }
  [[nodiscard]] const PendingOperation* find_next() const noexcept { return next_ < end_ ? find(next_) : nullptr; }
  /// Counts a member's Ask or Refuse of its next operation. Precondition: the operation is not broken.
  PendingOperation& count(std::size_t member);
  /// The next() operation has been released, or is refused.
  void resolve_next(bool released);
  /// Forgets operations that are resolved and asked by all members.
  void drop_known() noexcept;
  /// Breaks all operations from `from` on, but none that has been released. Returns whether end() has changed.
  bool end_at(std::uint64_t from) noexcept;

  /// Released operations that some member has not completed.
  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_.size(); }
  /// The first and the last of them. Precondition: there is one.
  [[nodiscard]] std::uint64_t oldest_in_flight() const noexcept { return in_flight_.front(); }
  [[nodiscard]] std::uint64_t last_in_flight() const noexcept { return in_flight_.back(); }
  void complete(std::size_t member, std::uint64_t completed) noexcept;
  /// Released operations that this member has not completed.
  [[nodiscard]] std::size_t in_flight_of(std::size_t member) const noexcept;

  /// The highest operation of the sequence that an operation of another sequence waits for, or has waited for.
  [[nodiscard]] std::uint64_t awaited() const noexcept { return awaited_; }
  void note_awaited(std::uint64_t operation) noexcept {
    if (operation > awaited_) awaited_ = operation;
  }

  /// What the next() operation, which all members have asked, waits for in another sequence.
  std::optional<OperationId> held_on = {};
  /// Sequences that are held_on an operation of this one.
  std::vector<std::pair<std::uint64_t, SequenceId>> waiters = {};
  /// When the leader checks next time whether the next() operation is overdue.
  std::optional<PendingOperation::Time> check = {};
  /// The open question about the next() operation; 0: none.
  std::uint64_t question = 0;

 private:
  friend struct LeaderState;  // of the tests: the state as bytes

  SequenceId id_;
  std::uint64_t instance_;
  Direction direction_;
  std::vector<SequenceMember> members_;
  std::deque<PendingOperation> operations_;
  std::uint64_t first_ = 1;
  std::uint64_t next_ = 1;
  std::uint64_t end_ = endless;
  std::uint64_t awaited_ = 0;
  std::deque<std::uint64_t> in_flight_;
  std::uint64_t completed_ = 0;  // by all members
  std::size_t slowest_;          // number of members that have completed no more than that
};

/// All sequences of a leader.
class LeaderSequences {
 public:
  LeaderSequence& add(std::uint64_t instance, Direction direction, const std::vector<std::uint16_t>& processes);
  void erase(SequenceId id) { sequences_.erase(id); }
  /// nullptr if it has ended.
  [[nodiscard]] LeaderSequence* find(SequenceId id) noexcept;
  [[nodiscard]] const LeaderSequence* find(SequenceId id) const noexcept;
  /// By id, in no order.
  [[nodiscard]] const std::unordered_map<SequenceId, LeaderSequence>& all() const noexcept { return sequences_; }
  /// LeaderSequence::is_resolved; true if the sequence has ended.
  [[nodiscard]] bool is_resolved(const OperationId& operation) const noexcept;

 private:
  std::unordered_map<SequenceId, LeaderSequence> sequences_;
  SequenceId last_ = 0;
};

}  // namespace cox::detail::world
