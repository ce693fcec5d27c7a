#pragma once

#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/servers/cuda/event/cuda_event.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace cox::detail {

/// Counts the work of one slot. Pieces are counted when they are submitted, when they are issued (later, if they wait
/// for something that the driver cannot wait for), and when they are complete. Completion is known only where an event
/// was recorded: a mark.
///
///     submitted >= issued >= marks >= completed
///
/// Device thread only, unless said otherwise.
class CudaTimeline {
 public:
  /// Any thread.
  [[nodiscard]] std::uint64_t submitted() const noexcept { return submitted_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t issued() const noexcept { return issued_; }
  /// The last position known to be complete. Any thread.
  [[nodiscard]] std::uint64_t completed() const noexcept { return completed_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t in_flight() const noexcept { return issued_ - completed(); }
  /// Number of marks not known to have been reached.
  [[nodiscard]] std::size_t marks() const noexcept { return marks_.size(); }
  [[nodiscard]] std::uint64_t last_mark() const noexcept {
    return marks_.empty() ? completed() : marks_.back().position;
  }

  std::uint64_t submit() noexcept {
    const std::uint64_t position = submitted() + 1;
    submitted_.store(position, std::memory_order_relaxed);  // one writer
    return position;
  }
  void issue() noexcept { ++issued_; }
  /// Counts a piece that gives the driver nothing: it is complete when the piece before it is.
  void issue_nothing() noexcept {
    if (!marks_.empty() && marks_.back().position == issued_) {
      ++marks_.back().position;
    } else if (completed() == issued_) {
      completed_.store(issued_ + 1, std::memory_order_relaxed);
    }
    ++issued_;
  }
  /// All work issued up to `position` is complete when `event` is reached.
  void mark(std::uint64_t position, std::shared_ptr<CudaEvent> event) {
    marks_.push_back({position, std::move(event)});
  }
  /// For slots whose pieces are not on one stream, before each submit(): allocates what end() needs. Throws
  /// std::bad_alloc.
  void reserve_end() {
    const std::size_t unissued = submitted() - issued_ + 1;
    if (spare_.capacity() < unissued) spare_.reserve(2 * unissued);
    while (spare_.size() + ended_.size() < unissued) {
      Ended one;
      one.emplace(0, nullptr);
      spare_.push_back(one.extract(one.begin()));
    }
  }
  /// The piece at `position` is complete, or will be when `event` is reached if it is not null.
  /// It counts as issued when all pieces before it do, and as complete when they are complete. Waits for `event` only
  /// if there is no memory.
  void end(std::uint64_t position, std::shared_ptr<CudaEvent> event) noexcept {
    if (position == issued_ + 1 && ended_.empty()) return end_next(std::move(event));
    Ended::node_type node = std::move(spare_.back());
    spare_.pop_back();
    node.key() = position;
    node.mapped() = std::move(event);
    ended_.insert(std::move(node));
    while (!ended_.empty() && ended_.begin()->first == issued_ + 1) {
      Ended::node_type next = ended_.extract(ended_.begin());
      end_next(std::move(next.mapped()));
      next.mapped() = nullptr;
      spare_.push_back(std::move(next));
    }
  }
  struct Mark {
    std::uint64_t position = 0;
    std::shared_ptr<CudaEvent> event;
  };
  /// The last mark. Precondition: there is one.
  [[nodiscard]] const Mark& back() const noexcept { return marks_.back(); }
  /// The first mark that covers `position`; null if there is none.
  [[nodiscard]] const Mark* covering(std::uint64_t position) const noexcept {
    const auto found = std::ranges::lower_bound(marks_, position, {}, &Mark::position);
    return found != marks_.end() ? &*found : nullptr;
  }
  /// Calls `visit(mark)` for all marks up to the first that covers `position`.
  template <class Visit>
  void for_each_mark_until(std::uint64_t position, Visit&& visit) const {
    for (const Mark& mark : marks_) {
      visit(mark);
      if (mark.position >= position) return;
    }
  }
  /// Whether pieces complete in order, as those on one stream do.
  void set_in_order(bool in_order) noexcept { in_order_ = in_order; }
  [[nodiscard]] bool in_order() const noexcept { return in_order_; }
  /// Polls the marks.
  void poll() noexcept {
    if (in_order_) return poll_in_order();
    while (!marks_.empty() && marks_.front().event->reached()) complete(marks_.begin());
  }
  /// Collects marks that other threads have already found reached. Makes no driver call.
  void collect_known() noexcept {
    if (marks_.empty()) return;
    if (in_order_ && marks_.back().event->known_reached()) return complete(std::prev(marks_.end()));
    while (!marks_.empty() && marks_.front().event->known_reached()) complete(marks_.begin());
  }

 private:
  using Ended = std::map<std::uint64_t, std::shared_ptr<CudaEvent>>;

  // cuEventQuery on an event that has been reached is expensive, so binary-search for the last reached mark instead of
  // polling each one.
  void poll_in_order() noexcept {
    if (marks_.empty() || !marks_.front().event->reached()) return;
    if (marks_.back().event->reached()) return complete(std::prev(marks_.end()));
    complete(std::prev(std::partition_point(marks_.begin() + 1, marks_.end() - 1,
                                            [](const Mark& mark) { return mark.event->reached(); })));
  }
  void end_next(std::shared_ptr<CudaEvent> event) noexcept {
    ++issued_;
    if (event == nullptr && !marks_.empty()) event = marks_.back().event;
    try {
      if (event != nullptr) return mark(issued_, event);
    } catch (...) {  // no memory for a mark
      for (const Mark& mark : marks_) mark.event->wait();
      event->wait();
      marks_.clear();
    }
    completed_.store(issued_, std::memory_order_relaxed);
  }
  void complete(std::deque<Mark>::iterator mark) noexcept {
    completed_.store(mark->position, std::memory_order_relaxed);
    marks_.erase(marks_.begin(), mark + 1);
  }

  std::atomic<std::uint64_t> submitted_{0};
  std::uint64_t issued_ = 0;
  std::atomic<std::uint64_t> completed_{0};
  bool in_order_ = false;
  std::deque<Mark> marks_;
  Ended ended_;                          // ended, not yet counted as issued
  std::vector<Ended::node_type> spare_;  // of reserve_end(): one for each other piece that is not counted as issued
};

}  // namespace cox::detail
