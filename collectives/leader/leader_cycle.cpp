#include <coxswain/collectives/leader/leader_cycle.hpp>

#include <algorithm>
#include <cstddef>
#include <map>

namespace cox::detail::world {
namespace {

/// Breadth-first search over the operations that an operation waits for.
class CycleSearch {
 public:
  CycleSearch(const LeaderSequences& sequences, OperationId closing) : sequences_(sequences), closing_(closing) {}

  std::vector<CycleStep> find(std::uint16_t process, const std::vector<OperationId>& awaited) {
    if (!may_close(awaited)) return {};
    for (const OperationId& each : awaited) follow({closing_, process, each}, 0);
    for (std::size_t place = 0; place < found_.size(); ++place) {
      const OperationId reached = found_[place].step.awaited;
      if (reached.sequence == closing_.sequence && reached.operation >= closing_.operation) return path_to(place);
      follow_waits_of(reached, place);
    }
    return {};
  }

 private:
  struct Found {
    CycleStep step;
    std::size_t before;  // place of the step that leads to it
  };

  // False if no operation waits for the closing one, or it waits already for all that the ask adds.
  [[nodiscard]] bool may_close(const std::vector<OperationId>& awaited) const {
    const LeaderSequence* const sequence = sequences_.find(closing_.sequence);
    if (sequence == nullptr || sequence->awaited() < closing_.operation) return false;
    const PendingOperation* const pending = sequence->find(closing_.operation);
    const auto is_known = [&](const OperationId& each) {
      return pending != nullptr && std::ranges::any_of(pending->awaited, [&](const PendingOperation::Wait& wait) {
               return wait.operation.sequence == each.sequence && wait.operation.operation >= each.operation;
             });
    };
    return !std::ranges::all_of(awaited, is_known);
  }

  void follow(const CycleStep& step, std::size_t before) {
    if (!sequences_.is_resolved(step.awaited)) found_.push_back({step, before});
  }

  // Follows the waits of an operation and of the earlier ones of its sequence, for which it waits too.
  void follow_waits_of(const OperationId& reached, std::size_t place) {
    const LeaderSequence& sequence = *sequences_.find(reached.sequence);
    std::uint64_t& seen = seen_[reached.sequence];
    for (std::uint64_t each = std::max(seen + 1, sequence.next()); each <= reached.operation; ++each) {
      const PendingOperation* const pending = sequence.find(each);
      if (pending == nullptr) break;
      for (const PendingOperation::Wait& wait : pending->awaited)
        follow({{reached.sequence, each}, wait.process, wait.operation}, place);
    }
    seen = std::max(seen, reached.operation);
  }

  [[nodiscard]] std::vector<CycleStep> path_to(std::size_t place) const {
    std::vector<CycleStep> path{found_[place].step};
    while (found_[place].step.operation != closing_) {
      place = found_[place].before;
      path.push_back(found_[place].step);
    }
    std::ranges::reverse(path);
    return path;
  }

  const LeaderSequences& sequences_;
  const OperationId closing_;
  std::vector<Found> found_;
  std::map<SequenceId, std::uint64_t> seen_;  // the waits of operations up to this one were followed
};

}  // namespace

std::vector<CycleStep> find_cycle(const LeaderSequences& sequences, OperationId closing, std::uint16_t process,
                                  const std::vector<OperationId>& awaited) {
  if (awaited.empty()) return {};
  return CycleSearch(sequences, closing).find(process, awaited);
}

}  // namespace cox::detail::world
