#pragma once

#include <coxswain/runtime/memory/memory_storage.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cox::test {

inline constexpr std::size_t granule = 4096;  ///< Of PaperMapping.
inline constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
inline constexpr StreamSlot one{0};
inline constexpr StreamSlot two{1};

/// A range of bytes.
struct Range {
  std::uint64_t begin;
  std::uint64_t end;
  friend bool operator==(const Range&, const Range&) = default;
};

/// Addresses that nobody touches: what a pool does is seen without any memory. Says what was done wrong.
class PaperMapping {
 public:
  explicit PaperMapping(std::size_t memory = no_limit, std::size_t granularity = granule)
      : memory_(memory), granularity_(granularity) {}

  [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
  [[nodiscard]] MemoryAddress reserve(std::size_t bytes) {
    ++calls;
    reserved += bytes;
    return MemoryAddress{1} << 45U;
  }
  void release(MemoryAddress, std::size_t bytes) noexcept { reserved -= bytes; }
  [[nodiscard]] bool map(MemoryAddress address, std::size_t bytes) noexcept {
    ++calls;
    if (bytes > memory_ - mapped || refuse) return false;
    for (MemoryAddress at = address; at < address + bytes; at += granularity_) put(at, ++pieces_);
    return true;
  }
  [[nodiscard]] bool alias(MemoryAddress from, MemoryAddress to, std::size_t bytes) noexcept {
    ++calls;
    if (refuse || refuse_alias) return false;
    for (std::size_t offset = 0; offset < bytes; offset += granularity_) put(to + offset, granules_.at(from + offset));
    ++aliased;
    return true;
  }
  void unmap(MemoryAddress address, std::size_t bytes) noexcept {
    ++calls;
    for (MemoryAddress at = address; at < address + bytes; at += granularity_) {
      const auto found = granules_.find(at);
      if (found == granules_.end()) {
        fault = "unmapped twice";
        return;
      }
      if (--uses_[found->second] == 0) mapped -= granularity_;
      granules_.erase(found);
    }
  }
  void trim() noexcept { ++calls; }

  /// Whether nothing is behind any address.
  [[nodiscard]] bool empty() const noexcept { return mapped == 0 && granules_.empty(); }
  [[nodiscard]] bool backs(MemoryAddress address, std::size_t bytes) const {
    for (MemoryAddress at = address / granularity_ * granularity_; at < address + bytes; at += granularity_) {
      if (!granules_.contains(at)) return false;
    }
    return true;
  }
  /// The bytes of memory behind a range that is mapped.
  [[nodiscard]] std::vector<Range> memory_behind(MemoryAddress address, std::size_t bytes) const {
    std::vector<Range> ranges;
    for (MemoryAddress at = address; at < address + bytes;) {
      const MemoryAddress first = at / granularity_ * granularity_;
      const MemoryAddress end = std::min<MemoryAddress>(first + granularity_, address + bytes);
      const std::uint64_t piece = granules_.at(first) * granularity_;
      ranges.push_back({piece + (at - first), piece + (end - first)});
      at = end;
    }
    return ranges;
  }

  std::size_t mapped = 0;  ///< bytes of memory, however many addresses they have
  std::size_t reserved = 0;
  std::size_t aliased = 0;  ///< calls
  std::size_t calls = 0;    ///< of all kinds
  bool refuse = false;
  bool refuse_alias = false;
  std::string fault;

 private:
  void put(MemoryAddress at, std::uint64_t piece) {
    if (!granules_.emplace(at, piece).second) fault = "mapped twice";
    if (++uses_[piece] == 1) mapped += granularity_;
  }

  std::size_t memory_;
  std::size_t granularity_;
  std::uint64_t pieces_ = 0;
  std::unordered_map<MemoryAddress, std::uint64_t> granules_;  // which piece of memory is behind it
  std::unordered_map<std::uint64_t, int> uses_;                // behind how many addresses a piece is
};

/// The same, where memory has one address at a time.
struct PaperMappingWithoutAliases : PaperMapping {
  using PaperMapping::PaperMapping;
  void alias() = delete;
};

/// The same, in regions.
class PaperRegions {
 public:
  explicit PaperRegions(std::size_t memory = std::numeric_limits<std::size_t>::max()) : memory_(memory) {}

  [[nodiscard]] std::size_t granularity() const noexcept { return 4096; }
  [[nodiscard]] MemoryAddress allocate(std::size_t bytes) noexcept {
    ++calls;
    if (bytes > memory_ - mapped || refuse) return 0;
    mapped += bytes;
    regions_[next_] = bytes;
    return std::exchange(next_, next_ + bytes + 4096);  // never neighbours
  }
  void free(MemoryAddress address, std::size_t bytes) noexcept {
    ++calls;
    const auto found = regions_.find(address);
    if (found == regions_.end() || found->second != bytes) {
      fault = "not a region";
      return;
    }
    regions_.erase(found);
    mapped -= bytes;
  }

  [[nodiscard]] bool empty() const noexcept { return mapped == 0 && regions_.empty(); }
  [[nodiscard]] bool backs(MemoryAddress address, std::size_t bytes) const {
    auto region = regions_.upper_bound(address);
    if (region == regions_.begin()) return false;
    --region;
    return address + bytes <= region->first + region->second;
  }
  [[nodiscard]] static std::vector<Range> memory_behind(MemoryAddress address, std::size_t bytes) {
    return {{address, address + bytes}};
  }

  std::size_t mapped = 0;
  std::size_t calls = 0;  ///< of all kinds
  bool refuse = false;
  std::string fault;

 private:
  std::size_t memory_;
  MemoryAddress next_ = MemoryAddress{1} << 45U;
  std::map<MemoryAddress, std::size_t> regions_;
};

/// Streams that come as far as the test says.
struct PaperClock {
  [[nodiscard]] std::uint64_t completed(StreamSlot stream) const noexcept {
    return done[static_cast<std::size_t>(stream)];
  }
  std::vector<std::uint64_t> done = std::vector<std::uint64_t>(8);
};

}  // namespace cox::test
