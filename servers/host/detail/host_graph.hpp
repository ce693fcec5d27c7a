#pragma once

#include <coxswain/runtime/managed_memory.hpp>
#include <coxswain/runtime/memory/resolve_window.hpp>
#include <coxswain/runtime/unique_function.hpp>

#include <cstddef>
#include <unordered_map>
#include <vector>

namespace cox::detail {

/// Work of a stream that was recorded instead of run, and is run as a whole by every replay. Keeps all memory that it
/// touches, so that nothing else is ever put there while the graph lives (L11).
class HostGraph {
 public:
  // Device thread, during the capture
  // -----------------------------------------------------------------------------------------------------------------

  /// Memory that was allocated during the capture. Throws std::bad_alloc.
  void keep(const ManagedMemory& memory) { memory_.push_back(memory); }
  /// Throws std::bad_alloc; then nothing was added.
  void add(const BufferUses& uses, UniqueFunction<void()> step);

  /// Each buffer once, as written if any step writes it. Device thread.
  [[nodiscard]] const BufferUses& uses() const noexcept { return uses_; }

  /// Runs all steps in order, until one throws. In the work of the stream.
  void run() {
    for (UniqueFunction<void()>& step : steps_) step();
  }

 private:
  std::vector<UniqueFunction<void()>> steps_;
  std::vector<ManagedMemory> memory_;
  BufferUses uses_;
  std::unordered_map<DeviceBuffer*, std::size_t> places_;  // in uses_
};

}  // namespace cox::detail
