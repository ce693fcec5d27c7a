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

}  // namespace cox
