#pragma once

#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/collectives/sequencer/communicator_sequence.hpp>
#include <coxswain/collectives/sequencer/world_order.hpp>
#include <coxswain/collectives/watch/communicator_number.hpp>
#include <coxswain/device_handle/base/device_id.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace cox::detail {

/// All open communicators of a sequencer. Their operations may wait for each other. Has no lock; the owner's lock
/// guards it.
class OpenCommunicators {
 public:
  using Time = CommunicatorSequence::Time;

  /// Why an operation is held back: the submission that has an unresolved dependency, and that dependency.
  struct Hold {
    const CollectiveSubmission* submission;
    CollectiveId dependency;
  };

  void insert(std::unique_ptr<CommunicatorSequence> communicator);
  /// nullptr if there is no such communicator, or it was closed.
  [[nodiscard]] CommunicatorSequence* find(CommunicatorNumber number) const noexcept;
  /// Any open communicator; nullptr if there is none.
  [[nodiscard]] const CommunicatorSequence* any_open() const noexcept;
  [[nodiscard]] std::vector<CommunicatorNumber> find_with_device(DeviceId device) const;

  /// Whether other operations need not wait for this one any more. True also if its communicator is closed or unknown.
  [[nodiscard]] bool is_resolved(const CollectiveId& dependency) const noexcept;
  /// The first unresolved dependency of an unresolved operation; nothing if there is none.
  [[nodiscard]] std::optional<Hold> hold(const WaitingOperation& operation) const noexcept;
  /// The sequences of a communicator of several processes that are open here.
  [[nodiscard]] std::vector<CommunicatorNumber> find_shared(const SharedCommunicator& communicator) const;
  /// The first one with a higher number that is shared with other processes; nullptr if there is none.
  [[nodiscard]] const CommunicatorSequence* next_shared(CommunicatorNumber after) const noexcept;
  /// The leader that is asked for operations of several processes; must be set before one of those is added. nullptr:
  /// it is lost.
  void ask_leader(WorldOrder* leader) noexcept { leader_ = leader; }

  /// Records the operations that the submission waits for. Must be called for each submission that is added.
  void record_dependencies(const CollectiveSubmission& submission) noexcept;
  /// Which operations may be released after a change of a communicator: of all communicators, of the changed one only,
  /// or none. Those that could be released otherwise stay in the list of held ones.
  enum class Releases : std::uint8_t { All, Changed, None };
  /// After a change of the communicator: resolves all operations that can be resolved, on it and on other
  /// communicators. Refusals of operations of the changed communicator do not depend on `releases`.
  void resolve_ready(CommunicatorSequence& changed, CollectiveSubmissions& grants, Releases releases) noexcept;
  /// Releases the held operations that do not wait for others any more.
  void resolve_held(CollectiveSubmissions& grants) noexcept;
  /// Removes a communicator. Precondition: it refuses everything, and all its operations are resolved.
  [[nodiscard]] std::unique_ptr<CommunicatorSequence> extract(CommunicatorNumber number) noexcept;

  /// Returns an oldest operation whose deadline has passed and that waits for no other such operation. (If it waited
  /// for one, the refusal of that one could release it.)
  [[nodiscard]] std::optional<CollectiveId> overdue(Time now) const noexcept;
  [[nodiscard]] std::optional<Time> next_deadline() const noexcept;
  /// Calls `visit(communicator)` for each communicator that has an unresolved operation.
  template <class Visit>
  void for_each_waiting(Visit&& visit) {
    for (const auto& [number, communicator] : communicators_)
      if (communicator->oldest() != nullptr) visit(*communicator);
  }
  /// Calls `visit(communicator)` for each one that is shared with other processes.
  template <class Visit>
  void for_each_shared(Visit&& visit) {
    for (const auto& [number, communicator] : communicators_)
      if (communicator->shared() != nullptr) visit(*communicator);
  }
  /// Moves the deadlines of all unresolved operations.
  void postpone(Time::duration by) noexcept;

 private:
  void resolve_ready_on(CommunicatorSequence& communicator, CollectiveSubmissions& grants, bool may_release) noexcept;
  void ask_ready(CommunicatorSequence& communicator) noexcept;
  [[nodiscard]] bool holds_back(const CommunicatorSequence& communicator) const noexcept;
  [[nodiscard]] static bool has_own_deadline(const CommunicatorSequence& communicator) noexcept;
  [[nodiscard]] bool has_been_asked(const CollectiveId& dependency) const noexcept;
  [[nodiscard]] std::optional<Hold> hold_of_ask(const WaitingOperation& operation) const noexcept;
  [[nodiscard]] CollectiveDependencies awaited_by(const WaitingOperation& operation) const;

  std::map<CommunicatorNumber, std::unique_ptr<CommunicatorSequence>> communicators_;
  // Communicators whose next operation all ranks have submitted, but which waits for other operations, or could not be
  // released when these were resolved (Releases). insert() reserves room for all.
  std::vector<CommunicatorSequence*> held_;
  std::uint64_t order_ = 0;  // number of operations released
  WorldOrder* leader_ = nullptr;
};

}  // namespace cox::detail
