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

/// The name of an operation in a list of suspects of a fault. The texts have static storage.
struct OperationName {
  const char* text = "work";  ///< "launch", "write"; null: cannot have caused the fault
  const char* kernel = nullptr;
  std::source_location site;
};

/// The last operations that were issued on a stream. The device thread writes, any thread reads. A reader may see an
/// entry that is being replaced as a mixture of two operations, but each text in it is a valid one.
class OperationHistory {
 public:
  static constexpr std::size_t kept = 256;

  void note(std::uint64_t position, const OperationName& name, StreamId stream) noexcept {
    Entry& entry = entries_[position % kept];
    // Relaxed: the history is read after the device has failed. The reader may miss the latest entries, which have not
    // caused the fault.
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
  /// The operations after position `completed` up to `submitted`, oldest first, at most `most`. Any thread.
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
