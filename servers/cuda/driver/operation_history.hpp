#pragma once

#include <coxswain/device_handle/base/stream_id.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

namespace cox::detail {

/// What an operation is called when it may be the culprit of a fault. Texts of static storage.
struct OperationName {
  const char* text = "work";  ///< "launch", "write"; null: what cannot be the culprit
  const char* kernel = nullptr;
  std::source_location site;
};

/// The last operations that a stream was given. The device thread writes, any thread reads: an entry that is just being
/// replaced may be read as a mixture of two, never as anything that is not a text.
class OperationHistory {
 public:
  static constexpr std::size_t kept = 256;

  void note(std::uint64_t position, const OperationName& name, StreamId stream) noexcept {
    Entry& entry = entries_[position % kept];
    // Relaxed: the reader comes when the device has failed; the last ones it may miss are not the culprits.
    entry.position.store(position, std::memory_order_relaxed);
    entry.text.store(name.text, std::memory_order_relaxed);
    entry.kernel.store(name.kernel, std::memory_order_relaxed);
    entry.file.store(name.site.file_name(), std::memory_order_relaxed);
    entry.line.store(name.site.line(), std::memory_order_relaxed);
    entry.stream.store(stream.value, std::memory_order_relaxed);
  }

  struct Operation {
    std::uint64_t position;
    std::string name;
    std::string site;
    StreamId stream;
  };
  /// Those after position `completed`, oldest first, at most `most`. Any thread.
  [[nodiscard]] std::vector<Operation> after(std::uint64_t completed, std::uint64_t submitted, std::size_t most) const;

 private:
  struct Entry {
    std::atomic<std::uint64_t> position{0};
    std::atomic<const char*> text{nullptr};
    std::atomic<const char*> kernel{nullptr};
    std::atomic<const char*> file{nullptr};
    std::atomic<std::uint32_t> line{0};
    std::atomic<std::uint64_t> stream{0};
  };
  std::array<Entry, kept> entries_;
};

}  // namespace cox::detail
