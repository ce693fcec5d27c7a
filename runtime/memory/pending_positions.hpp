#pragma once

#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>

#include <algorithm>
#include <utility>

namespace cox {

/// The end positions of work that belongs to a stream but runs elsewhere, such as collectives: the last one of each
/// slot. Device thread only.
class PendingPositions {
 public:
  /// Reserves space for one more position. Throws std::bad_alloc.
  void prepare() { positions_.reserve(positions_.size() + 1); }
  /// Adds a position, or replaces an earlier one of the same slot. Precondition: prepare() was called for it.
  void add(const StreamPosition& position) noexcept {
    const auto same = std::ranges::find(positions_, position.stream, &StreamPosition::stream);
    if (same != positions_.end()) {
      same->position = std::max(same->position, position.position);
    } else {
      positions_.push_back(position);  // prepare() has reserved space
    }
  }
  void clear() noexcept { positions_.clear(); }
  /// The positions that `clock` does not report as reached. Removes the others.
  template <class Clock>
  [[nodiscard]] const StreamPositions& left(const Clock& clock) {
    StreamPositions left;
    for (const StreamPosition& position : positions_)
      if (clock.completed(position.stream) < position.position) left.push_back(position);
    positions_ = std::move(left);
    return positions_;
  }

 private:
  StreamPositions positions_;
};

/// What the operations of a rank wait for, as long as they may still be refused. An operation comes behind the earlier
/// ones of its rank by itself, since they are on one stream, and does not wait for them. But a refused operation is not
/// on that stream: what follows it must wait for what it would have waited for. Device thread only.
class WaitsOfUnissued {
 public:
  /// Adds to `waits`, of the rank's next operation, those of the earlier ones, and keeps all of them. `all_issued`:
  /// none of the earlier operations can be refused any more. Throws std::bad_alloc.
  template <class Clock>
  void join(StreamPositions& waits, bool all_issued, const Clock& clock) {
    if (all_issued) earlier_.clear();
    for (const StreamPosition& position : earlier_.left(clock)) {
      const auto covers = [&](const StreamPosition& wait) {
        return wait.stream == position.stream && wait.position >= position.position;
      };
      if (std::ranges::none_of(waits, covers)) waits.push_back(position);
    }
    for (const StreamPosition& position : waits) {
      if (clock.completed(position.stream) >= position.position) continue;
      earlier_.prepare();
      earlier_.add(position);
    }
  }

 private:
  PendingPositions earlier_;
};

}  // namespace cox
