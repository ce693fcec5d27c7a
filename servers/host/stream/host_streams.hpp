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

/// The streams of a host device, and how far they have come. A StreamId that has nothing queued and nothing to tell is
/// forgotten sooner or later: its slot, whose count goes on, is the next StreamId's. Device thread only.
class HostStreams {
 public:
  HostStreams(DeviceId device, HostThreads& threads) noexcept : device_(device), threads_(threads) {}
  HostStreams(const HostStreams&) = delete;
  HostStreams& operator=(const HostStreams&) = delete;

  /// Finds the stream or makes it. Throws std::bad_alloc.
  [[nodiscard]] HostStream& find_or_create(StreamId id);
  /// As StreamClock says.
  [[nodiscard]] std::uint64_t completed(StreamSlot slot) const noexcept {
    return slots_[static_cast<std::size_t>(slot)].timeline->count();
  }
  /// What to wait for until these positions are reached.
  [[nodiscard]] HostEvents events(const StreamPositions& positions) const;

  /// A slot of its own for what is counted like a stream's work, but is no stream. Throws std::bad_alloc.
  struct TakenSlot {
    StreamSlot slot;
    std::shared_ptr<Timeline> timeline;  ///< counts on from where it is
  };
  [[nodiscard]] TakenSlot acquire_slot();
  /// When nothing that was counted there is under way.
  void release_slot(StreamSlot slot) noexcept { free_slots_.push_back(slot); }
  /// The stream of the slot; null if it is none.
  [[nodiscard]] HostStream* stream_at(StreamSlot slot) const noexcept {
    return slots_[static_cast<std::size_t>(slot)].stream;
  }
  /// From piece `from` on these positions are waited for: adds to `awaited` the collectives among them and those that
  /// they and their streams wait for there. Throws std::bad_alloc.
  void note_waits(CollectiveDependencyTracker& awaited, std::uint64_t from, const StreamPositions& waits) const;
  /// The collective that ends at `end` waits for all of `awaited`: even if it is refused (HostCommunicator). Throws
  /// std::bad_alloc.
  void note_collective(const StreamPosition& end, const CollectiveDependencyTracker& awaited);

  /// Calls `visit(stream)` for each.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [id, stream] : streams_) visit(*stream);
  }

 private:
  void forget_idle();

  struct Slot {
    std::shared_ptr<Timeline> timeline;
    HostStream* stream = nullptr;
    CollectiveDependencyTracker awaited;  // by a communicator's operations
  };

  DeviceId device_;
  HostThreads& threads_;
  std::unordered_map<StreamId, std::shared_ptr<HostStream>> streams_;
  std::vector<Slot> slots_;
  std::vector<StreamSlot> free_slots_;  // with room for all slots
  std::size_t sweep_at_ = 1024;         // streams: a client thread that has ended leaves its stream behind
};

}  // namespace cox::detail
