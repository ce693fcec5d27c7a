#pragma once

#include <coxswain/runtime/memory/stream_position.hpp>

#include <cstdint>
#include <vector>

namespace cox::detail {

/// The collectives that a stream has come to wait for, each with the piece of the stream from which on it does: what
/// must have been released before a collective that waits for the stream may be. Those that are done are forgotten.
/// Device thread only.
class CollectiveDependencyTracker {
 public:
  /// From piece `from` on; later calls have the same or a later one. `collective`: its place among those of its
  /// communicator. Throws std::bad_alloc.
  template <class Clock>
  void add(std::uint64_t from, const StreamPosition& collective, const Clock& clock) {
    if (clock.completed(collective.stream) >= collective.position) return;
    for (const Entry& entry : entries_)
      if (entry.collective.stream == collective.stream && entry.collective.position >= collective.position) return;
    std::erase_if(entries_, [&](const Entry& entry) { return is_completed(entry, clock); });
    entries_.push_back({from, collective});
  }

  /// Calls `visit(collective)` for each that piece `last` or one before it waits for, and that is not done.
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
