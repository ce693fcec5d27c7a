#pragma once

#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/collectives/sequencer/communicator_sequence.hpp>
#include <coxswain/collectives/sequencer/queued_submission.hpp>
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

/// All communicators of a sequencer, whose operations may wait for each other. No lock: whoever owns it has one.
class OpenCommunicators {
 public:
  using Time = CommunicatorSequence::Time;

  /// Who holds an operation back, and by what.
  struct Hold {
    const QueuedSubmission* submission;
    CollectiveId dependency;
  };

  void insert(std::unique_ptr<CommunicatorSequence> communicator);
  /// nullptr if there is no such, or no longer.
  [[nodiscard]] CommunicatorSequence* find(CommunicatorNumber number) const noexcept;
  /// Any of those that are open; nullptr if none is.
  [[nodiscard]] const CommunicatorSequence* any_open() const noexcept;
  [[nodiscard]] std::vector<CommunicatorNumber> find_with_device(DeviceId device) const;

  /// Whether nothing needs to wait for the operation any more. True also where the communicator is closed or unknown.
  [[nodiscard]] bool is_resolved(const CollectiveId& dependency) const noexcept;
  /// The first unresolved dependency of an operation that is not resolved.
  [[nodiscard]] std::optional<Hold> hold(const WaitingOperation& operation) const noexcept;

  /// Remembers what the submission waits for. To be called for all that are added.
  void record_dependencies(const QueuedSubmission& submission) noexcept;
  /// Resolves what can be resolved after a change of the communicator, on it and on others.
  void resolve_ready(CommunicatorSequence& changed, QueuedSubmissions& grants) noexcept;
  /// Takes one out that refuses everything, and is settled.
  [[nodiscard]] std::unique_ptr<CommunicatorSequence> extract(CommunicatorNumber number) noexcept;

  /// An oldest operation whose deadline has come, and that waits for none whose deadline has come too: the refusal of
  /// that one may let this one go.
  [[nodiscard]] std::optional<CollectiveId> overdue(Time now) const noexcept;
  [[nodiscard]] std::optional<Time> next_deadline() const noexcept;
  /// Calls `visit(communicator)` for each that has an operation which is not resolved.
  template <class Visit>
  void for_each_waiting(Visit&& visit) {
    for (const auto& [number, communicator] : communicators_)
      if (communicator->oldest() != nullptr) visit(*communicator);
  }
  /// Moves all deadlines that are set.
  void postpone(Time::duration by) noexcept;

 private:
  void resolve_ready_on(CommunicatorSequence& communicator, QueuedSubmissions& grants) noexcept;

  std::map<CommunicatorNumber, std::unique_ptr<CommunicatorSequence>> communicators_;
  std::vector<CommunicatorSequence*> held_;  // whose oldest operation has all its ranks, but must wait; room for all
  std::uint64_t order_ = 0;                  // operations released
};

}  // namespace cox::detail
