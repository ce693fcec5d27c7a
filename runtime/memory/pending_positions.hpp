#pragma once

#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>

#include <algorithm>
#include <utility>

namespace cox {

/// Places at which work ends that belongs to a stream and is not on it: the last one of each slot. Device thread only.
class PendingPositions {
 public:
  /// Room for one more. Throws std::bad_alloc.
  void prepare() { positions_.reserve(positions_.size() + 1); }
  /// After prepare().
  void add(const StreamPosition& position) noexcept {
    const auto same = std::ranges::find(positions_, position.stream, &StreamPosition::stream);
    if (same != positions_.end()) {
      *same = position;
    } else {
      positions_.push_back(position);  // there is room
    }
  }
  /// Those that are not known to have been reached.
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
