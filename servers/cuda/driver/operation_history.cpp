#include <coxswain/servers/cuda/driver/operation_history.hpp>

#include <algorithm>

namespace cox::detail {

std::vector<OperationHistory::Operation> OperationHistory::after(std::uint64_t completed, std::uint64_t submitted,
                                                                 std::size_t most) const {
  std::vector<Operation> found;
  std::uint64_t position = std::max(completed, submitted > kept ? submitted - kept : 0) + 1;
  for (; position <= submitted && found.size() < most; ++position) {
    const Entry& entry = entries_[position % kept];
    const char* const text = entry.text.load(std::memory_order_relaxed);
    if (text == nullptr || entry.position.load(std::memory_order_relaxed) != position) continue;
    Operation operation{position, text, {}, {entry.stream.load(std::memory_order_relaxed)}};
    if (const char* const kernel = entry.kernel.load(std::memory_order_relaxed))
      operation.name += std::string(" of ") + kernel;
    if (const char* const file = entry.file.load(std::memory_order_relaxed))
      operation.site = std::string(file) + ":" + std::to_string(entry.line.load(std::memory_order_relaxed));
    found.push_back(std::move(operation));
  }
  return found;
}

}  // namespace cox::detail
