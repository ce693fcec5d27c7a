#pragma once

#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/buffer/resolve_window.hpp>
#include <coxswain/runtime/handle/managed_memory.hpp>
#include <coxswain/runtime/memory/device_buffer.hpp>

#include <cstddef>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cox {

/// The work of a stream that a capture has recorded instead of running it. It consists of parts. The steps of a part
/// are replayed as one operation. After each part but the last there is a callback that every replay calls again, for
/// work that involves more than the stream itself, such as a collective. Keeps all memory that the steps use, so that
/// it cannot be reused during the lifetime of this object (L11). For servers whose resources are DeviceBuffers. Device
/// thread only.
template <class Step, class ReplayCallback>
class RecordedWork {
 public:
  struct Part {
    std::vector<Step> steps = {};
    BufferUses uses = {};                 ///< each buffer once, with the combined access of all steps
    ReplayCallback replay_callback = {};  ///< called after this part; empty in the last part
    std::unordered_map<DeviceBuffer*, std::size_t> use_index = {};  ///< index of each buffer in `uses`
  };

  RecordedWork() : parts_(1) {}

  /// Keeps memory that was allocated during the capture. Replay callbacks keep the memory that they use themselves.
  /// Throws std::bad_alloc.
  void keep(const ManagedMemory& memory) { memory_.push_back(memory); }
  /// Adds a step to the last part. Throws std::bad_alloc; then the step was not added. Uses that were already recorded
  /// for it stay, so that the part may wait for more than necessary.
  void add(const BufferUses& uses, Step step) {
    Part& part = parts_.back();
    for (const BufferUse& use : uses) {
      if (const auto found = part.use_index.find(use.buffer); found != part.use_index.end()) {
        merge(part.uses[found->second], use);
        continue;
      }
      if (use.memory) memory_.emplace_back(use.memory);
      part.uses.push_back(use);
      part.use_index.emplace(use.buffer, part.uses.size() - 1);  // last: an index always has its use
    }
    part.steps.push_back(std::move(step));
  }
  /// Adds a callback after the steps added so far, and begins a new part. Throws std::bad_alloc; then nothing was
  /// added.
  void add_replay_callback(ReplayCallback replay_callback) {
    parts_.emplace_back();
    parts_[parts_.size() - 2].replay_callback = std::move(replay_callback);
  }

  /// At least one part. A part may have no steps.
  [[nodiscard]] std::vector<Part>& parts() noexcept { return parts_; }

 private:
  // Combines two successive accesses to a buffer into one. If the first overwrites a whole allocation, so does the
  // combination. Otherwise different accesses become Write, because the second may read, or write only a part of, what
  // the first has left.
  static void merge(BufferUse& first, const BufferUse& next) noexcept {
    if (first.access == Access::Overwrite && first.whole) return;
    if (first.access == next.access) {
      first.whole = first.whole || next.whole;
    } else {
      first.access = Access::Write;
    }
  }

  std::vector<Part> parts_;
  std::vector<ManagedMemory> memory_;
};

}  // namespace cox
