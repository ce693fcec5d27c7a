#pragma once

#include <coxswain/tools/cox/stress/buffer.hpp>

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace cox::stress {

/// A set of slots through which clients swap buffers of one device, so that a buffer is used on the streams of one
/// client after those of another. Any thread.
class Exchange {
 public:
  explicit Exchange(std::size_t slots) : slots_(slots) {}

  /// Puts `buffer` into a slot and returns the previous content of the slot, which may be an empty buffer. The work
  /// that the previous owner has submitted on it precedes that of the new owner: the slot's mutex orders them.
  [[nodiscard]] Buffer swap(std::size_t slot, Buffer buffer) {
    Slot& chosen = slots_[slot % slots_.size()];
    const std::lock_guard lock(chosen.mutex);
    std::swap(chosen.buffer, buffer);
    return buffer;
  }

  /// Drops all buffers.
  void clear() {
    for (Slot& slot : slots_) {
      const std::lock_guard lock(slot.mutex);
      slot.buffer = {};
    }
  }

 private:
  struct Slot {
    std::mutex mutex;
    Buffer buffer;
  };
  std::vector<Slot> slots_;
};

}  // namespace cox::stress
