#pragma once

#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/memory/device_buffer.hpp>

#include <algorithm>
#include <source_location>
#include <unordered_map>
#include <vector>

namespace cox {

/// The buffers that captures in progress write. Their contents are undefined until the graph has been replayed. Until
/// the capture ends, only streams that are capturing too may use them: what they record runs in replays, and replays
/// that use the same buffer are ordered. Device thread only.
class CapturedWrites {
 public:
  /// Whether no capture writes any buffer.
  [[nodiscard]] bool empty() const noexcept { return writers_.empty(); }
  /// Marks the stream as capturing until forget(). Throws std::bad_alloc.
  void begin(StreamId stream) {
    if (!is_capturing(stream)) capturing_.push_back(stream);
  }
  /// Records that the capture on `stream` writes the buffer. The graph keeps the buffer alive. Throws std::bad_alloc.
  void note(const DeviceBuffer& buffer, StreamId stream) {
    const auto [first, last] = writers_.equal_range(&buffer);
    if (std::none_of(first, last, [&](const auto& entry) { return entry.second == stream; }))
      writers_.emplace(&buffer, stream);
  }
  /// Removes the records of `stream`. Call it when the capture on `stream` has ended.
  void forget(StreamId stream) noexcept {
    std::erase(capturing_, stream);
    std::erase_if(writers_, [&](const auto& entry) { return entry.second == stream; });
  }
  /// Throws ServerError Graph if a capture writes the buffer and the stream of `location` does not capture.
  void require_none(const DeviceBuffer& buffer, const Location& location, std::source_location site) const;

 private:
  [[nodiscard]] bool is_capturing(StreamId stream) const noexcept {
    return std::ranges::find(capturing_, stream) != capturing_.end();
  }

  std::vector<StreamId> capturing_;
  std::unordered_multimap<const DeviceBuffer*, StreamId> writers_;
};

}  // namespace cox
