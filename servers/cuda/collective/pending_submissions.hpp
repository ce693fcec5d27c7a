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

/// The operations that a rank has submitted and not asked for yet, in their order. Those in front lie one behind the
/// other, as they are asked for together. Device thread only.
class PendingSubmissions {
 public:
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return submissions_.size() - begin_; }
  /// The launch of the submission keeps the part. Throws std::bad_alloc; then nothing has changed.
  void push(CollectiveSubmission&& submission, RankOperation& part) {
    parts_.push_back(&part);
    try {
      submissions_.push_back(std::move(submission));
    } catch (...) {
      parts_.pop_back();
      throw;
    }
  }
  /// The first ones, so many at most. Good until the next call that changes something.
  [[nodiscard]] std::span<CollectiveSubmission> front(std::size_t most) noexcept {
    return std::span(submissions_).subspan(begin_, std::min(most, size()));
  }
  /// The first `count` have been asked for.
  void drop(std::size_t count) noexcept {
    begin_ += count;
    if (begin_ * 2 < submissions_.size()) return;  // so that none is moved more often than another is dropped
    const auto dropped = static_cast<std::ptrdiff_t>(std::exchange(begin_, 0));
    submissions_.erase(submissions_.begin(), submissions_.begin() + dropped);
    parts_.erase(parts_.begin(), parts_.begin() + dropped);
  }
  /// None will be asked for.
  void refuse(const std::exception_ptr& refusal) noexcept {
    for (RankOperation* const part : std::span(parts_).subspan(begin_)) part->refuse(refusal);
    drop(size());
  }

 private:
  std::vector<CollectiveSubmission> submissions_;
  std::vector<RankOperation*> parts_;  // of each
  std::size_t begin_ = 0;              // those before have been asked for
};

}  // namespace cox::detail
