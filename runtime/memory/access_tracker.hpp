#pragma once

#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>

#include <algorithm>
#include <cstddef>

namespace cox {

using StreamPositions = SmallVector<StreamPosition, 4>;

/// The last accesses of an allocation: its last writer, and for each stream the last reader since. They determine the
/// hazards (RAW, WAR, WAW) that work on another stream must wait for, and when the memory may be reused (L11). Device
/// thread only.
///
/// An access is recorded in three steps, so that no stream waits for a position that was never queued if a step fails:
/// call add_waits and prepare, which may throw; queue the work; call record.
class AccessTracker {
 public:
  AccessTracker() noexcept = default;
  /// For memory that was used before: `after` is the last position of that use.
  explicit AccessTracker(StreamPosition after) noexcept : writer_(after) {}

  /// Adds to `waits` the positions that must be reached before work of stream `stream` may access the memory. Throws
  /// std::bad_alloc.
  template <class Clock>
  void add_waits(Access access, StreamSlot stream, const Clock& clock, StreamPositions& waits) const {
    const auto add = [&](const StreamPosition& use) {
      if (use.stream != stream && is_pending(use, clock)) waits.push_back(use);
    };
    add(writer_);
    if (writes(access)) std::for_each(readers_.begin(), readers_.end(), add);
  }

  /// Reserves space for one more access. If this needs an allocation, readers that have completed are removed first.
  /// Throws std::bad_alloc.
  template <class Clock>
  void prepare(const Clock& clock) {
    if (readers_.size() < readers_.capacity()) return;
    StreamPositions remaining;
    remaining.reserve(readers_.size() + 1);
    for (const StreamPosition& reader : readers_)
      if (is_pending(reader, clock)) remaining.push_back(reader);
    readers_ = std::move(remaining);
  }

  /// Records work that has been queued at `use`. Precondition: prepare() was called for it.
  void record(Access access, StreamPosition use) noexcept {
    shared_ = shared_ || (writer_.stream != no_stream && writer_.stream != use.stream);
    if (writes(access)) {
      readers_.clear();
      writer_ = use;
      return;
    }
    const auto same = std::find_if(readers_.begin(), readers_.end(),
                                   [&](const StreamPosition& reader) { return reader.stream == use.stream; });
    if (same != readers_.end()) {
      *same = use;
    } else {
      readers_.push_back(use);
    }
  }

  /// Whether a stream other than that of the last writer has accessed the memory. If so, it is worthwhile to know
  /// exactly where each access ends.
  [[nodiscard]] bool is_shared() const noexcept { return shared_; }

  /// The pending accesses that must complete before the memory may be reused by any stream. Accesses whose completion
  /// follows from another one are omitted. Throws std::bad_alloc.
  template <class Clock>
  [[nodiscard]] StreamPositions pending(const Clock& clock) const {
    StreamPositions uses;
    for (const StreamPosition& reader : readers_)
      if (is_pending(reader, clock)) uses.push_back(reader);
    // Every reader has waited for the writer, so a completed reader implies that the writer has completed.
    if (readers_.empty() && is_pending(writer_, clock)) uses.push_back(writer_);
    return uses;
  }

 private:
  template <class Clock>
  [[nodiscard]] static bool is_pending(const StreamPosition& use, const Clock& clock) noexcept {
    return use.stream != no_stream && clock.completed(use.stream) < use.position;
  }

  StreamPosition writer_;
  StreamPositions readers_;
  bool shared_ = false;
};

}  // namespace cox
