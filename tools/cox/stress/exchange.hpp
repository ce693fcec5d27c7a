#pragma once

#include <coxswain/tools/cox/stress/buffer.hpp>

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace cox::stress {

/// Where clients swap buffers of one device, so that a buffer is used on the streams of one client after those of
/// another. Any thread.
class Exchange {
 public:
  explicit Exchange(std::size_t slots) : slots_(slots) {}

  /// Puts `buffer` into a slot and gives back what was there, which may be nothing (an empty buffer). What the giver
  /// has submitted on it comes before what the taker submits: the slot's mutex orders them.
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
