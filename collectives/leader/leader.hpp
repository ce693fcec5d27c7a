#pragma once

#include <coxswain/collectives/leader/leader_cycle.hpp>
#include <coxswain/collectives/leader/leader_report.hpp>
#include <coxswain/collectives/leader/leader_sequence.hpp>
#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cox::detail::world {

struct LeaderOptions {
  /// Number of released operations of a sequence that a member process may not have completed yet (L17).
  std::size_t max_ahead = 1024;
  /// Number of operations of a sequence that a process may have asked and that are neither released nor refused.
  std::size_t max_asked = 4096;
  /// Number of groups of devices in the life of the world.
  std::size_t max_groups = 65'536;
  /// How long a process has to answer a Why.
  std::chrono::milliseconds answer_time{1000};
};

/// A message that the leader sends.
struct Outgoing {
  std::uint16_t process = 0;
  Message message;
};

/// Gives the operations of all processes of a world one order (L17; docs/decisions/0011-worlds.md). A state machine: it
/// has no thread, no lock, no socket and no clock; the caller calls it from one thread at a time, with times that do
/// not decrease, and then sends what take_outgoing() returns, in its order. A value: copies are independent.
///
/// - Operation n of a sequence is released when all member processes have asked it, their fingerprints agree, operation
///   n - 1 is released or refused, all operations that an Ask awaits are resolved, and no member process has
///   LeaderOptions::max_ahead released operations of the sequence that it has not completed.
/// - Releases have one order, that of turns. Each process gets its releases in this order.
/// - An operation is refused for all member processes if one refuses it, if the fingerprints of two differ (Mismatch),
///   or if an Ask would make operations wait for each other in a cycle (WouldDeadlock). Later ones are not affected.
/// - A break ends an instance, for all its member processes: a process breaks or closes it, a process is gone or
///   absent, or an operation is overdue (Timeout). No operation that was released is among those that end.
/// - The creation of NCCL's communicators is an operation of a sequence of its own. So no process enters NCCL before
///   all member processes are ready, and the creation has its turn: each process has launched everything with an
///   earlier turn, and nothing with a later one.
/// - A process that leaves in good order, and has completed its released operations, breaks its instances. The others
///   need it until they have completed these, too.
/// - A Share is passed on to the other member processes. So is a Mark; its sender gets a MarkNoted when all of them
///   have noted it, or are gone. A LinkCheck is passed on to the process that it names.
/// - An operation is overdue at the deadline of its first Ask. The missing processes are asked what they are doing, and
///   the instance breaks when they have answered, or LeaderOptions::answer_time later, unless all have asked by then.
///
/// Why processes do not wait for each other forever: every operation that is asked by all its members is released,
/// refused or broken, because waits have no cycle and Progress comes in the order of turns; one that is not asked by
/// all has a deadline.
///
/// An Ask costs O(1) plus the operations that it awaits, a release O(members); neither depends on the number of
/// communicators. All functions throw std::bad_alloc, after which the leader is unusable.
class Leader {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Kind = CollectiveError::Kind;
  /// A process that has left.
  struct Left {
    std::uint16_t process = 0;
    std::string why = {};        ///< "it has left the world"
    bool in_good_order = false;  ///< Bye without a text
  };
  /// What is wrong with a message of a process; nothing if it is in order.
  using Fault = std::optional<std::string>;

  /// A world of these processes, all of which have joined. At most max_processes.
  explicit Leader(std::vector<ProcessFacts> processes, LeaderOptions options = {});

  /// The message for a process that has joined, to be sent to it before all others.
  [[nodiscard]] Welcome welcome() const;
  /// A process that is gone has a successor, which has connected to all others. Sends it a Broken for each group with
  /// it that has a broken instance, and a Gone for each absent process; then a Joined to it and all others.
  /// Precondition: the process is gone.
  void joined(std::uint16_t process, ProcessFacts facts);
  /// The process has ended, or is silent. Breaks all instances with the process, and sends to the others a Gone, with
  /// this kind: ProcessGone or ProcessSilent. Messages of the process are ignored from now on. Idempotent.
  void gone(std::uint16_t process, Kind kind, const std::string& text);
  /// A message of a process. If it returns a fault, the message is not in order: the caller must end the link and call
  /// gone(). Ignores the messages of processes that are gone: after joined(), the caller must pass on messages of the
  /// successor only. Precondition: the world has a process of this number.
  [[nodiscard]] Fault receive(std::uint16_t process, Message message, Time now);
  /// A process that has sent a Bye, and that the others do not need any more. The caller must call gone() for it, and
  /// then this again. Every call of the other functions can change it.
  [[nodiscard]] std::optional<Left> next_left() const;
  /// Handles the operations that are overdue, and the questions that were not answered.
  void expire(Time now);
  /// When expire() must be called next: at once if that is not in the future. Can be before any operation is overdue.
  /// Every call of the other functions can change it.
  [[nodiscard]] std::optional<Time> next_deadline() const;
  /// Replaces `outgoing` by the messages that have been added since the last call, in order.
  void take_outgoing(std::vector<Outgoing>& outgoing);

  /// Whether other processes wait for this one: for its Ask of an operation, or for its part in a released one that it
  /// has not reported as completed, or for its reply to a Mark.
  [[nodiscard]] bool awaits(std::uint16_t process) const;
  /// For people. Costs time in proportion to all that is open.
  [[nodiscard]] LeaderReport report() const;
  [[nodiscard]] bool is_present(std::uint16_t process) const noexcept { return processes_[process].is_present; }

 private:
  friend struct LeaderState;  // of the tests: the state as bytes

  using InstanceId = std::uint64_t;

  struct Binding {
    SequenceId sequence = 0;  // 0: of an instance that has ended
    std::size_t member = 0;
  };
  struct Leaving {
    std::string why;
    bool in_good_order;  // the Bye gives no reason
    bool is_needed;      // until the others have completed what it has completed
  };
  struct Process {
    bool is_present = true;
    std::optional<Leaving> leaving = {};  // it has sent a Bye, and is present
    ProcessFacts facts = {};
    std::unordered_map<std::uint64_t, Binding> bindings = {};  // by number
    std::set<InstanceId> instances = {};                       // that have not ended
  };
  struct Group {
    std::vector<DeviceId> devices;
    std::vector<std::uint16_t> processes = {};           // sorted
    std::uint64_t broken = 0;                            // the last broken epoch
    std::map<std::uint64_t, InstanceId> instances = {};  // by epoch, those that have not ended
    Kind kind = Kind::Aborted;                           // of the last break
    std::uint16_t culprit = no_process;
    std::string text = {};
  };
  struct Instance {
    std::size_t group;
    std::uint64_t epoch;
    std::map<Direction, SequenceId> sequences = {};
    bool is_given_up = false;  // a process has sent a Mark of operation 0
  };
  struct Question {
    OperationId about;                                            // the overdue operation
    OperationId root;                                             // the operation that it waits for; often itself
    Time end;                                                     // when answers are no longer waited for
    std::map<std::uint16_t, std::optional<std::string>> answers;  // by missing process
  };
  /// An operation that waits for processes, and for which.
  struct Root {
    OperationId operation;
    std::vector<std::uint16_t> missing;
    bool is_behind;  // they have asked, but have not completed earlier operations
  };
  /// What a break ends: the operations of `sequence` from `from` on, and all of the other sequences.
  struct Cause {
    Kind kind;
    std::uint16_t process;
    std::string text;
    SequenceId sequence = 0;
    std::uint64_t from = 0;
  };

  /// A Mark that some processes have not noted.
  struct PendingMark {
    std::uint16_t origin;
    std::uint64_t id;  // that the origin gave it
    std::set<std::uint16_t> missing;
  };

  /// Released operations of an instance that has ended, which a process has not completed.
  struct Unfinished {
    SequenceId sequence = 0;
    std::size_t group = 0;
    std::uint64_t epoch = 0;
    std::uint64_t last = 0;
    std::set<std::uint16_t> completed_by = {};
  };

  // leader.cpp: messages and releases
  [[nodiscard]] Fault on(std::uint16_t process, Ask& message, Time now);
  [[nodiscard]] Fault on(std::uint16_t process, Refuse& message, Time now);
  [[nodiscard]] Fault on(std::uint16_t process, const Progress& message);
  [[nodiscard]] Fault count(LeaderSequence& sequence, std::size_t member, std::uint64_t operation,
                            PendingOperation*& counted, Time now);
  [[nodiscard]] Fault find_awaited(std::uint16_t process, const Ask& ask, const LeaderSequence& sequence,
                                   std::vector<OperationId>& awaited) const;
  [[nodiscard]] Fault find_sequence(std::uint16_t process, std::uint64_t number, LeaderSequence*& sequence,
                                    std::size_t& member);
  void refuse(LeaderSequence& sequence, std::uint64_t operation, Kind kind, std::string text);
  void advance_ready();
  void advance(LeaderSequence& sequence);
  [[nodiscard]] bool may_release(LeaderSequence& sequence, const PendingOperation& pending);
  void release_next(LeaderSequence& sequence);
  void wake_waiters(LeaderSequence& sequence);
  void send(std::uint16_t process, Message message);

  // leader_instances.cpp: instances, and the processes in them
  [[nodiscard]] Fault on(std::uint16_t process, Open& message);
  [[nodiscard]] Fault on(std::uint16_t process, Break& message);
  [[nodiscard]] Fault on(std::uint16_t process, Close& message);
  [[nodiscard]] Fault check_group(std::uint16_t process, const Open& message) const;
  [[nodiscard]] Fault bind(std::uint16_t process, const Open& message, InstanceId instance);
  InstanceId make_instance(std::size_t group, std::uint64_t epoch);
  void break_instance(InstanceId id, const Cause& cause);
  void send_broken(const Instance& instance, const Cause& cause);
  void send_known_refusals(const LeaderSequence& sequence, const SequenceMember& member);
  void end_if_finished(InstanceId id);

  // leader_leaving.cpp: processes that leave in good order
  void on(std::uint16_t process, const Bye& message);
  template <class Visit>
  [[nodiscard]] bool any_sequence_of(std::uint16_t process, const Visit& visit) const;
  [[nodiscard]] bool has_unfinished(std::uint16_t process) const;
  [[nodiscard]] bool others_need(std::uint16_t process) const;
  [[nodiscard]] bool is_unfinished(const LeaderSequence& sequence, std::size_t index) const;
  void keep_unfinished(const LeaderSequence& sequence);
  void drop_unfinished(std::uint16_t process, std::uint64_t number, std::uint64_t completed);
  void drop_given_up(const OperationOfAll& of);
  void drop_unfinished_of(std::uint16_t process);

  // leader_deadlines.cpp: deadlines
  void on(std::uint16_t process, Answer& message);
  void watch(LeaderSequence& sequence);
  void watch_at(LeaderSequence& sequence, std::optional<Time> time);
  void drop_question(LeaderSequence& sequence);
  void handle_overdue(LeaderSequence& sequence, Time now);
  [[nodiscard]] Root root_of(const LeaderSequence& sequence) const;
  void conclude(std::uint64_t question);
  [[nodiscard]] std::string overdue_text(const Question& question, const Root& root) const;

  // leader_marks.cpp: messages that are passed on
  [[nodiscard]] Fault on(std::uint16_t process, Share& message);
  [[nodiscard]] Fault on(std::uint16_t process, Mark& message);
  [[nodiscard]] Fault on(std::uint16_t process, const MarkNoted& message);
  [[nodiscard]] Fault on(std::uint16_t process, const LinkCheck& message);
  [[nodiscard]] Fault find_others(std::uint16_t process, const OperationOfAll& of,
                                  std::set<std::uint16_t>& others) const;
  void finish_if_noted(std::uint64_t mark);
  void forget_marks_of(std::uint16_t process);

  // leader_text.cpp: names and texts
  [[nodiscard]] std::string name(std::uint16_t process) const;
  [[nodiscard]] std::string sentence_of(std::uint16_t process, const std::string& why) const;
  [[nodiscard]] std::string name(OperationId operation) const;
  [[nodiscard]] std::string name_with_request(OperationId operation) const;
  [[nodiscard]] std::string cycle_text(const std::vector<CycleStep>& cycle) const;

  LeaderOptions options_;
  std::vector<Process> processes_;
  std::vector<Group> groups_;
  std::map<std::vector<DeviceId>, std::size_t> group_of_;
  std::map<InstanceId, Instance> instances_;  // that have not ended
  InstanceId last_instance_ = 0;
  LeaderSequences sequences_;
  std::uint64_t turns_ = 0;
  std::vector<SequenceId> ready_;                 // whose next operation may have become releasable
  std::set<std::pair<Time, SequenceId>> checks_;  // LeaderSequence::check
  std::map<std::uint64_t, Question> questions_;   // their ends increase with their numbers
  std::uint64_t last_question_ = 0;
  std::map<std::uint64_t, PendingMark> marks_;
  std::uint64_t last_mark_ = 0;
  std::size_t leaving_ = 0;                                                   // processes with Process::leaving
  std::map<std::pair<std::uint16_t, std::uint64_t>, Unfinished> unfinished_;  // by process and its number
  std::vector<Outgoing> outgoing_;
};

}  // namespace cox::detail::world
