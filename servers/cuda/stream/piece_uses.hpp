#pragma once

#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/buffer/operation_memory.hpp>
#include <coxswain/runtime/buffer/resolve_window.hpp>
#include <coxswain/runtime/memory/device_buffer.hpp>

#include <cstddef>

namespace cox::detail {

/// A buffer that a launch uses. Does not keep the buffer.
struct LaunchUse {
  DeviceBuffer* buffer;
  Access access;
  bool whole;
};

/// The memory of the piece of work that is being issued. Refers to a BufferUses or to the uses of an OperationMemory.
class PieceUses {
 public:
  PieceUses() noexcept = default;
  PieceUses(const BufferUses& uses) noexcept : now_(&uses) {}              // NOLINT(google-explicit-constructor)
  PieceUses(const OperationMemory::Uses& uses) noexcept : kept_(&uses) {}  // NOLINT(google-explicit-constructor)

  /// The uses hold references to the buffers. Their owner releases them when the piece has been issued.
  [[nodiscard]] bool is_kept() const noexcept { return kept_ != nullptr; }
  [[nodiscard]] std::size_t size() const noexcept {
    if (now_ != nullptr) return now_->size();
    return kept_ != nullptr ? kept_->size() : 0;
  }
  /// Calls `visit(LaunchUse)` for each use.
  template <class Visit>
  void for_each(Visit&& visit) const {
    if (now_ != nullptr) {
      for (const BufferUse& use : *now_) visit(LaunchUse{use.buffer, use.access, use.whole});
    } else if (kept_ != nullptr) {
      for (const KeptBufferUse& use : *kept_) visit(LaunchUse{use.buffer.operator->(), use.access, use.whole});
    }
  }

 private:
  const BufferUses* now_ = nullptr;
  const OperationMemory::Uses* kept_ = nullptr;
};

}  // namespace cox::detail
