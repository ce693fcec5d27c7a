#pragma once

#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/servers/cuda/collective/rank_operation.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <utility>
#include <vector>

namespace cox::detail {

/// The operations that a rank has queued but not yet submitted to the sequencer, in order. The first ones are
/// contiguous in memory, since they are submitted together. Device thread only.
class PendingSubmissions {
 public:
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return submissions_.size() - begin_; }
  /// Appends a submission. `part` is not owned: the launch of the submission keeps it alive. Throws std::bad_alloc;
  /// then nothing has changed.
  void push(CollectiveSubmission&& submission, RankOperation& part) {
    parts_.push_back(&part);
    try {
      submissions_.push_back(std::move(submission));
    } catch (...) {
      parts_.pop_back();
      throw;
    }
  }
  /// The first submissions, at most `most`. Valid until the next call of push(), drop() or refuse().
  [[nodiscard]] std::span<CollectiveSubmission> front(std::size_t most) noexcept {
    return std::span(submissions_).subspan(begin_, std::min(most, size()));
  }
  /// Removes the first `count`, which have been submitted to the sequencer.
  void drop(std::size_t count) noexcept {
    begin_ += count;
    if (begin_ * 2 < submissions_.size()) return;  // so that each removal moves at most one submission on average
    const auto dropped = static_cast<std::ptrdiff_t>(std::exchange(begin_, 0));
    submissions_.erase(submissions_.begin(), submissions_.begin() + dropped);
    parts_.erase(parts_.begin(), parts_.begin() + dropped);
  }
  /// Refuses and removes all of them: they will not be submitted to the sequencer.
  void refuse(const std::exception_ptr& refusal) noexcept {
    for (RankOperation* const part : std::span(parts_).subspan(begin_)) part->refuse(refusal);
    drop(size());
  }

 private:
  std::vector<CollectiveSubmission> submissions_;
  std::vector<RankOperation*> parts_;  // the part of each submission
  std::size_t begin_ = 0;              // index of the first one that has not been submitted to the sequencer
};

}  // namespace cox::detail
