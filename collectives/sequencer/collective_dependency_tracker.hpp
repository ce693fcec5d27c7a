#pragma once

#include <coxswain/runtime/memory/stream_position.hpp>

#include <cstdint>
#include <vector>

namespace cox::detail {

/// The collectives that the work of a stream waits for, each with the first piece of the stream that waits for it. A
/// collective that waits for the stream must not be released before them. Completed collectives are removed. Device
/// thread only.
class CollectiveDependencyTracker {
 public:
  /// The stream waits for `collective` from piece `from` on. `from` must not decrease from call to call. `collective`:
  /// its position in the order of its communicator. Throws std::bad_alloc.
  template <class Clock>
  void add(std::uint64_t from, const StreamPosition& collective, const Clock& clock) {
    if (clock.completed(collective.stream) >= collective.position) return;
    for (const Entry& entry : entries_)
      if (entry.collective.stream == collective.stream && entry.collective.position >= collective.position) return;
    std::erase_if(entries_, [&](const Entry& entry) { return is_completed(entry, clock); });
    entries_.push_back({from, collective});
  }

  /// Calls `visit(collective)` for each incomplete collective that piece `last` or an earlier piece waits for.
  template <class Clock, class Visit>
  void for_each_until(std::uint64_t last, const Clock& clock, Visit&& visit) const {
    for (const Entry& entry : entries_)
      if (entry.from <= last && !is_completed(entry, clock)) visit(entry.collective);
  }

 private:
  struct Entry {
    std::uint64_t from;
    StreamPosition collective;
  };
  template <class Clock>
  [[nodiscard]] static bool is_completed(const Entry& entry, const Clock& clock) noexcept {
    return clock.completed(entry.collective.stream) >= entry.collective.position;
  }

  std::vector<Entry> entries_;
};

}  // namespace cox::detail
