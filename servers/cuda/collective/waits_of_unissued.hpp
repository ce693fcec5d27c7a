#pragma once

#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/runtime/memory/pending_positions.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>

#include <algorithm>

namespace cox::detail {

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

}  // namespace cox::detail
