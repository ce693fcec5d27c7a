#pragma once

#include <coxswain/runtime/trace/trace_event.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cox::trace::detail {

/// A buffer for a fixed number of events. Threads acquire it in chunks, and only the acquiring thread writes to a
/// chunk. When all chunks have been used, the one that was acquired longest ago is emptied and reused, unless a thread
/// still holds it.
class EventRing {
 public:
  struct Chunk {
    std::atomic<bool> in_use{false};
    std::size_t count = 0;  // owned, like `events`, by the thread that acquired the chunk
    Event* events = nullptr;
  };

  /// Touches all memory, so that recording threads take no page faults later. Throws std::bad_alloc.
  explicit EventRing(std::size_t capacity)
      : chunk_events_(std::clamp<std::size_t>(capacity / min_chunks, 1, max_chunk_events)),
        events_(capacity / chunk_events_ * chunk_events_),
        chunks_(capacity / chunk_events_) {
    for (std::size_t i = 0; i < chunks_.size(); ++i) chunks_[i].events = events_.data() + i * chunk_events_;
  }

  [[nodiscard]] bool full(const Chunk& chunk) const noexcept { return chunk.count == chunk_events_; }

  /// Returns an empty chunk for the calling thread, or nullptr if all are in use. Lock-free.
  [[nodiscard]] Chunk* acquire() noexcept {
    for (std::size_t tried = 0; tried < chunks_.size(); ++tried) {
      Chunk& chunk = chunks_[next_.fetch_add(1, std::memory_order_relaxed) % chunks_.size()];
      if (chunk.in_use.load(std::memory_order_relaxed)) continue;
      if (chunk.in_use.exchange(true, std::memory_order_acquire)) continue;  // pairs with release()
      drop(chunk.count);
      chunk.count = 0;
      return &chunk;
    }
    return nullptr;
  }

  void release(Chunk& chunk) noexcept { chunk.in_use.store(false, std::memory_order_release); }  // pairs with acquire()

  /// Counts `events` dropped events.
  void drop(std::uint64_t events) noexcept { dropped_.fetch_add(events, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

  /// Calls `visit(event)` for each event. Precondition: no thread writes to the ring any more.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Chunk& chunk : chunks_) std::for_each_n(chunk.events, chunk.count, visit);
  }

 private:
  static constexpr std::size_t min_chunks = 64;
  static constexpr std::size_t max_chunk_events = 256;

  const std::size_t chunk_events_;
  std::vector<Event> events_;
  std::vector<Chunk> chunks_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace cox::trace::detail
