#include <coxswain/collectives/sequencer/wait_cycle.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace cox::detail {
namespace {

/// Breadth-first search over the operations that an operation waits for.
class RingSearch {
 public:
  RingSearch(const OpenCommunicators& communicators, const CollectiveSubmission& closing)
      : communicators_(communicators), closing_(closing) {}

  std::optional<std::string> find() {
    if (!may_close()) return std::nullopt;
    follow(closing_, 0);
    for (std::size_t place = 0; place < steps_.size(); ++place) {
      const CollectiveId dependency = steps_[place].dependency;
      if (is_closing(dependency)) return text(place);
      look_through(dependency, place);
    }
    return std::nullopt;
  }

 private:
  // False if the submission cannot close a cycle, which saves the search: no operation waits for this one or a later
  // one of its communicator, or the operation is refused, or it already waits for everything that the submission
  // depends on.
  [[nodiscard]] bool may_close() const {
    const auto& after = closing_.dependencies;
    const CommunicatorSequence& among = communicator_of(closing_);
    const auto closes = [this](const CollectiveId& dependency) { return is_closing(dependency); };
    if (among.awaited() < closing_.grant.sequence && std::ranges::none_of(after, closes)) return false;
    const WaitingOperation* operation = among.waiting(closing_.grant.sequence);
    if (operation == nullptr) return true;
    return !operation->grant.refusal &&
           !std::ranges::all_of(after, [&](const auto& dependency) { return waits_for(*operation, dependency); });
  }

  static bool waits_for(const WaitingOperation& operation, const CollectiveId& dependency) {
    for (const CollectiveSubmission& submission : operation.arrived)
      for (const CollectiveId& other : submission.dependencies)
        if (other.communicator == dependency.communicator && other.sequence >= dependency.sequence) return true;
    return false;
  }

  [[nodiscard]] bool is_closing(const CollectiveId& dependency) const {
    return dependency.communicator == closing_.communicator && dependency.sequence >= closing_.grant.sequence;
  }

  /// `waits` waits for `dependency`. `waits` belongs to an operation that the step with index `before` leads to.
  struct Step {
    const CollectiveSubmission* waits;
    CollectiveId dependency;
    std::size_t before;
  };

  void follow(const CollectiveSubmission& waits, std::size_t before) {
    for (const CollectiveId& dependency : waits.dependencies)
      if (!communicators_.is_resolved(dependency)) steps_.push_back({&waits, dependency, before});
  }

  // Follows the dependency's operation and the earlier ones of its communicator, since it waits for these too.
  void look_through(const CollectiveId& dependency, std::size_t place) {
    const CommunicatorSequence& among = *communicators_.find(dependency.communicator);
    std::uint64_t& seen = seen_[dependency.communicator];
    for (std::uint64_t next = std::max(seen + 1, among.oldest_sequence()); next <= dependency.sequence; ++next) {
      const WaitingOperation* operation = among.waiting(next);
      if (operation == nullptr) break;
      if (operation->grant.refusal) continue;
      for (const CollectiveSubmission& submission : operation->arrived) follow(submission, place);
    }
    seen = std::max(seen, dependency.sequence);
  }

  [[nodiscard]] std::string text(std::size_t last) const {
    std::vector<const Step*> ring{&steps_[last]};
    while (ring.back()->waits != &closing_) ring.push_back(&steps_[ring.back()->before]);
    std::ranges::reverse(ring);
    std::string text = "operations would wait for each other forever: " + name(closing_);
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const bool closes = i + 1 == ring.size();
      const CollectiveSubmission& next = closes ? closing_ : *ring[i + 1]->waits;
      text += i == 0 ? " waits for " : ", which waits for ";
      if (ring[i]->dependency.sequence != next.grant.sequence)
        text += communicator_of(next).describe(ring[i]->dependency.sequence) + ", which comes after ";
      text += closes ? "the first operation" : name(next);
    }
    return text;
  }

  [[nodiscard]] std::string name(const CollectiveSubmission& submission) const {
    return fmt::format("operation {} of {}, {} by {}", submission.grant.sequence, communicator_of(submission).name(),
                       to_string(submission.requests), submission.device.to_string());
  }
  [[nodiscard]] const CommunicatorSequence& communicator_of(const CollectiveSubmission& submission) const {
    return *communicators_.find(submission.communicator);
  }

  const OpenCommunicators& communicators_;
  const CollectiveSubmission& closing_;
  std::vector<Step> steps_;
  std::map<CommunicatorNumber, std::uint64_t> seen_;  // by communicator: operations up to this number were followed
};

}  // namespace

std::optional<std::string> find_wait_cycle(const OpenCommunicators& communicators,
                                           const CollectiveSubmission& closing) {
  return RingSearch(communicators, closing).find();
}

}  // namespace cox::detail
