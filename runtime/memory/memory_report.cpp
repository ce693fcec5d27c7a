#include <coxswain/runtime/memory/memory_report.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

namespace cox {
namespace {

constexpr std::size_t named_owners = 5;

std::string biggest_owners(const std::map<std::string, std::size_t>& by_label) {
  std::vector<std::pair<std::string, std::size_t>> owners(by_label.begin(), by_label.end());
  std::ranges::sort(owners, std::ranges::greater(), &std::pair<std::string, std::size_t>::second);
  std::string text;
  for (std::size_t i = 0; i < std::min(owners.size(), named_owners); ++i) {
    text += (i == 0 ? "" : ", ") + (owners[i].first.empty() ? "(no label)" : owners[i].first) + " " +
            format_byte_count(owners[i].second);
  }
  if (owners.size() > named_owners) text += ", " + std::to_string(owners.size() - named_owners) + " more";
  return text;
}

std::string name_of(const MemoryBlock& block) {
  if (block.label == nullptr) return "";
  if (block.label_line == 0) return block.label;
  const std::string_view path(block.label);
  return std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(block.label_line);
}

}  // namespace

void MemoryReport::add(const MemoryBlock& block) {
  switch (block.state) {
    case MemoryBlock::State::Live: by_label[name_of(block)] += block.size; return;
    case MemoryBlock::State::Blocked: waiting += block.size; break;
    case MemoryBlock::State::Free:
    case MemoryBlock::State::Cached:
      if (block.owner != no_stream) waiting += block.size;
      break;
    default: return;
  }
  free += block.size;
  largest_free = std::max(largest_free, block.size);
}

MemoryReport& MemoryReport::operator+=(const MemoryReport& other) {
  usage += other.usage;
  capacity += other.capacity;
  free += other.free;
  largest_free = std::max(largest_free, other.largest_free);
  waiting += other.waiting;
  for (const auto& [label, bytes] : other.by_label) by_label[label] += bytes;
  return *this;
}

double MemoryReport::fragmentation() const noexcept {
  return free == 0 ? 0.0 : 1.0 - static_cast<double>(largest_free) / static_cast<double>(free);
}

std::string to_string(const MemoryReport& report) {
  std::string text = to_string(report.usage);
  if (report.capacity != std::numeric_limits<std::size_t>::max())
    text += ", capacity " + format_byte_count(report.capacity);
  text += "; free " + format_byte_count(report.free) + ", the largest piece " + format_byte_count(report.largest_free) +
          " (fragmentation " + std::to_string(std::lround(100.0 * report.fragmentation())) + " %)";
  if (report.waiting != 0) text += ", " + format_byte_count(report.waiting) + " of the free memory waits for streams";
  if (!report.by_label.empty()) text += "; biggest owners: " + biggest_owners(report.by_label);
  return text;
}

IoError allocation_error(const Location& location, std::size_t size, const MemoryReport& report,
                         std::source_location site) {
  const IoError::Sizes sizes{
      .requested = size, .in_use = report.usage.bytes_in_use + report.usage.bytes_padding, .capacity = report.capacity};
  log::write(LogSubsystem::Memory, LogLevel::Info, [&] {
    return "cannot allocate " + format_byte_count(size) + " on " + location.to_string() + ": " + to_string(report);
  });
  if (size > report.capacity) return IoError::buffer_too_big(location, sizes, site);
  return IoError::out_of_memory(location, sizes, site, to_string(report));
}

}  // namespace cox
