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

/// Work of a stream that a capture has recorded instead of running it, in parts: steps that are replayed as one, and
/// behind each part but the last something that every replay has to do anew, since others than the stream have a say in
/// it. Keeps all memory that the steps touch, so that nothing else is ever put there while it lives (L11). For servers
/// whose resources are DeviceBuffers. Device thread only.
template <class Step, class ReplayCallback>
class RecordedWork {
 public:
  struct Part {
    std::vector<Step> steps = {};
    BufferUses uses = {};                 ///< each buffer once, with what the steps do to it together
    ReplayCallback replay_callback = {};  ///< empty: of the last part
    std::unordered_map<DeviceBuffer*, std::size_t> use_index = {};  ///< in uses
  };

  RecordedWork() : parts_(1) {}

  /// Memory that was allocated during the capture; replay callbacks keep what they use themselves. Throws
  /// std::bad_alloc.
  void keep(const ManagedMemory& memory) { memory_.push_back(memory); }
  /// Throws std::bad_alloc; then the step was not added. Buffers that were noted for it make the part wait for more.
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
  /// Behind what has been added so far, and before what comes. Throws std::bad_alloc; then nothing was added.
  void add_replay_callback(ReplayCallback replay_callback) {
    parts_.emplace_back();
    parts_[parts_.size() - 2].replay_callback = std::move(replay_callback);
  }

  /// At least one, which may have no steps.
  [[nodiscard]] std::vector<Part>& parts() noexcept { return parts_; }

 private:
  // What the steps do to a buffer one after the other, as one operation. A whole allocation that is overwritten first
  // is overwritten; else whoever comes second reads, or writes a part of, what the first has left.
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
