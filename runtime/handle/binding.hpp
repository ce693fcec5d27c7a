#pragma once

#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/runtime/handle/managed_memory.hpp>

#include <cstddef>

namespace cox {

/// A window of an allocation, for use by an operation. Keeps the memory alive, but is not counted as a handle.
struct Binding {
  ManagedMemory memory;
  std::size_t offset_start = 0;  ///< bytes left out at the front
  std::size_t offset_end = 0;    ///< bytes left out at the back
  StreamId stream;               ///< the stream that the memory was allocated on

  /// Bytes of the window.
  [[nodiscard]] std::size_t size_in_used() const noexcept {
    return memory ? memory.size() - offset_start - offset_end : 0;
  }
};

}  // namespace cox
