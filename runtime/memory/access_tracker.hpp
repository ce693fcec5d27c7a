#pragma once

#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>

#include <algorithm>
#include <cstddef>

namespace cox {

using StreamPositions = SmallVector<StreamPosition, 4>;

/// Who used an allocation last: its last writer, and on each stream the last reader since. From this follows what a use
/// on another stream must wait for (read after write, write after read, write after write), and when the memory may be
/// used for something else (L11). Device thread only.
///
/// A use is registered in three steps, so that a failure in between leaves nothing behind that others would wait for:
/// add_waits and prepare, which may throw; queue the work; note.
class AccessTracker {
 public:
  AccessTracker() noexcept = default;
  /// Of memory that had a life before, which ends at `after`.
  explicit AccessTracker(StreamPosition after) noexcept : writer_(after) {}

  /// Adds to `waits` what must be over before work of stream `stream` may read or write the memory. Throws
  /// std::bad_alloc.
  template <class Clock>
  void add_waits(Access access, StreamSlot stream, const Clock& clock, StreamPositions& waits) const {
    const auto add = [&](const StreamPosition& use) {
      if (use.stream != stream && is_pending(use, clock)) waits.push_back(use);
    };
    add(writer_);
    if (writes(access)) std::for_each(readers_.begin(), readers_.end(), add);
  }

  /// Makes room for one more use; where that needs memory, forgets readers that are done first. Throws std::bad_alloc.
  template <class Clock>
  void prepare(const Clock& clock) {
    if (readers_.size() < readers_.capacity()) return;
    StreamPositions remaining;
    remaining.reserve(readers_.size() + 1);
    for (const StreamPosition& reader : readers_)
      if (is_pending(reader, clock)) remaining.push_back(reader);
    readers_ = std::move(remaining);
  }

  /// The work has been queued at `use`. After prepare().
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

  /// Streams other than its writer's have used the memory: it is worth knowing where each use ends.
  [[nodiscard]] bool is_shared() const noexcept { return shared_; }

  /// The uses that must be over before the memory is anybody else's: those that are not, none of which implies another.
  /// Throws std::bad_alloc.
  template <class Clock>
  [[nodiscard]] StreamPositions pending(const Clock& clock) const {
    StreamPositions uses;
    for (const StreamPosition& reader : readers_)
      if (is_pending(reader, clock)) uses.push_back(reader);
    // Every reader has waited for the writer; a reader that is done shows that the writer is.
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
