#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/servers/host/stream/host_stream.hpp>
#include <coxswain/servers/host/stream/host_threads.hpp>
#include <coxswain/servers/host/stream/timeline.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace cox::detail {

/// The streams of a host device, and the number of pieces that each has completed. A stream without queued work or
/// undelivered errors is eventually removed. Its slot is then reused for another StreamId, and the count of the slot
/// continues. Device thread only.
class HostStreams {
 public:
  HostStreams(DeviceId device, HostThreads& threads) noexcept : device_(device), threads_(threads) {}
  HostStreams(const HostStreams&) = delete;
  HostStreams& operator=(const HostStreams&) = delete;

  /// Finds or creates the stream. Throws std::bad_alloc.
  [[nodiscard]] HostStream& find_or_create(StreamId id);
  /// See StreamClock.
  [[nodiscard]] std::uint64_t completed(StreamSlot slot) const noexcept {
    return slots_[static_cast<std::size_t>(slot)].timeline->count();
  }
  /// The events to wait for until these positions are reached.
  [[nodiscard]] HostEvents events(const StreamPositions& positions) const;

  /// A slot whose count is used for work that is not on a stream. acquire_slot() throws std::bad_alloc.
  struct TakenSlot {
    StreamSlot slot;
    std::shared_ptr<Timeline> timeline;  ///< continues from its current count
  };
  [[nodiscard]] TakenSlot acquire_slot();
  /// Returns the slot for reuse. No work that it counts may be in flight.
  void release_slot(StreamSlot slot) noexcept { free_slots_.push_back(slot); }
  /// The stream of the slot; null if the slot has no stream.
  [[nodiscard]] HostStream* stream_at(StreamSlot slot) const noexcept {
    return slots_[static_cast<std::size_t>(slot)].stream;
  }
  /// Piece `from` and later ones wait for these positions. Adds to `awaited` the collectives among the positions, and
  /// the collectives that the work up to these positions waits for. Throws std::bad_alloc.
  void note_waits(CollectiveDependencyTracker& awaited, std::uint64_t from, const StreamPositions& waits) const;
  /// The collective that ends at `end` waits for all of `awaited`, even if it is refused (HostRank). Throws
  /// std::bad_alloc.
  void note_collective(const StreamPosition& end, const CollectiveDependencyTracker& awaited);

  /// Calls `visit(stream)` for each stream.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [id, stream] : streams_) visit(*stream);
  }

 private:
  void forget_idle();

  struct Slot {
    std::shared_ptr<Timeline> timeline;
    HostStream* stream = nullptr;
    CollectiveDependencyTracker awaited;  // collectives that the operations of a communicator wait for
  };

  DeviceId device_;
  HostThreads& threads_;
  std::unordered_map<StreamId, std::shared_ptr<HostStream>> streams_;
  std::vector<Slot> slots_;
  std::vector<StreamSlot> free_slots_;  // with capacity for all slots
  std::size_t sweep_at_ = 1024;         // number of streams at which idle ones are removed
};

}  // namespace cox::detail
