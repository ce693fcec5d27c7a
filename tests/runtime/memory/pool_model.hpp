#pragma once

#include <coxswain/runtime/memory/memory_pool.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cox::test {

/// A range of bytes.
struct Range {
  std::uint64_t begin;
  std::uint64_t end;
};

/// Addresses that nobody touches: what a pool does is seen without any memory. Says what was done wrong.
class PaperMapping {
 public:
  explicit PaperMapping(std::size_t memory = std::numeric_limits<std::size_t>::max(), std::size_t granularity = 4096)
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
    if (refuse) return false;
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
      const MemoryAddress granule = at / granularity_ * granularity_;
      const MemoryAddress end = std::min<MemoryAddress>(granule + granularity_, address + bytes);
      const std::uint64_t piece = granules_.at(granule) * granularity_;
      ranges.push_back({piece + (at - granule), piece + (end - granule)});
      at = end;
    }
    return ranges;
  }

  std::size_t mapped = 0;  ///< bytes of memory, however many addresses they have
  std::size_t reserved = 0;
  std::size_t aliased = 0;  ///< calls
  std::size_t calls = 0;    ///< of all kinds
  bool refuse = false;
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

/// The same, in regions.
class PaperRegions {
 public:
  explicit PaperRegions(std::size_t memory = std::numeric_limits<std::size_t>::max()) : memory_(memory) {}

  [[nodiscard]] std::size_t granularity() const noexcept { return 4096; }
  [[nodiscard]] MemoryAddress allocate(std::size_t bytes) noexcept {
    ++calls;
    if (bytes > memory_ - mapped) return 0;
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

/// A pool beside the plainest account of what it may do: the uses of every byte that are not done. Each step checks the
/// laws and returns what is broken, or nothing.
template <class Storage>
class PoolModel {
 public:
  PoolModel(Storage& storage, const MemoryPoolOptions& options)
      : storage_(storage), options_(options), pool_(storage, clock_, options) {}

  /// Allocates for `stream`; what was handed out is checked and kept alive. Whether there was memory in `got`.
  std::string allocate(std::size_t bytes, StreamSlot stream, Growth growth = Growth::Allowed) {
    const std::size_t calls = storage_.calls;
    const auto allocation = pool_.allocate(bytes, stream, {"test"}, growth);
    if (growth == Growth::Forbidden && storage_.calls != calls) return "the storage was called";
    if (!allocation) return check();
    if (growth == Growth::Forbidden && waits_for_another(*allocation, stream)) return "another stream is waited for";
    const MemoryAddress begin = allocation->address;
    if (begin % options_.alignment != 0 || allocation->size < bytes || allocation->size >= bytes + options_.alignment)
      return "size or alignment";
    if (!storage_.backs(begin, allocation->size)) return "L11: memory that is not mapped";
    const std::vector<Range> memory = storage_.memory_behind(begin, allocation->size);
    for (const Range& range : memory) {
      const auto next = live_memory_.lower_bound(range.begin);
      if (next != live_memory_.end() && next->first < range.end) return "L11: overlaps a live allocation";
      if (next != live_memory_.begin() && std::prev(next)->second > range.begin)
        return "L11: overlaps a live allocation";
      for (const Use& use : uses_) {
        if (use.end <= range.begin || range.end <= use.begin || clock_.completed(use.at.stream) >= use.at.position)
          continue;
        // Its first use may be on any stream, which waits for `after` and nothing else.
        const bool ordered = use.at.stream == allocation->after.stream && use.at.position <= allocation->after.position;
        if (!ordered) return "L11: memory that another stream may still use";
      }
    }
    for (const Range& range : memory) live_memory_[range.begin] = range.end;
    live_[begin] = *allocation;
    in_use_ += bytes;
    asked_[begin] = bytes;
    return check();
  }

  /// Frees the n-th live allocation, used by the streams of `users` at positions yet to come.
  std::string free(std::size_t n, const std::vector<StreamSlot>& users) {
    auto chosen = live_.begin();
    std::advance(chosen, static_cast<std::ptrdiff_t>(n % live_.size()));
    std::vector<StreamPosition> positions;
    for (const StreamSlot stream : users) positions.push_back({stream, ++submitted_[static_cast<std::size_t>(stream)]});
    // What the memory was handed out with is still to be waited for, if nobody has.
    if (const StreamPosition after = chosen->second.after;
        after.stream != no_stream && positions.empty() && clock_.completed(after.stream) < after.position)
      positions.push_back(after);
    for (const StreamPosition& at : positions) {
      if (chosen->second.after.stream != no_stream) waits_.emplace_back(at, chosen->second.after);
    }
    for (const StreamPosition& at : positions) addressed_.push_back({chosen->first, chosen->second.size, at});
    for (const Range& range : storage_.memory_behind(chosen->first, chosen->second.size)) {
      live_memory_.erase(range.begin);
      if (!positions.empty()) forget_uses(range);  // these uses came after those
      for (const StreamPosition& at : positions) uses_.push_back({range.begin, range.end, at});
    }
    pool_.free(chosen->second, positions);
    in_use_ -= asked_.at(chosen->first);
    asked_.erase(chosen->first);
    live_.erase(chosen);
    return check();
  }

  /// The stream's work goes on: half of what it has yet to do, and what that waits for on other streams.
  void progress(StreamSlot stream) {
    auto& done = clock_.done;
    const auto index = static_cast<std::size_t>(stream);
    done[index] += (submitted_[index] - done[index] + 1) / 2;
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& [user, waited_for] : waits_) {
        if (clock_.completed(user.stream) < user.position || clock_.completed(waited_for.stream) >= waited_for.position)
          continue;
        done[static_cast<std::size_t>(waited_for.stream)] = waited_for.position;
        moved = true;
      }
    }
    const auto over = [&](const StreamPosition& at) { return clock_.completed(at.stream) >= at.position; };
    std::erase_if(waits_, [&](const auto& wait) { return over(wait.second); });
    std::erase_if(uses_, [&](const Use& use) { return over(use.at); });
    std::erase_if(addressed_, [&](const Addressed& use) { return over(use.at); });
  }

  std::string set_capacity(std::size_t bytes) {
    pool_.set_capacity(bytes);
    reserved_when_set_ = pool_.reserved();
    return check();
  }

  std::string cleanup() {
    pool_.cleanup();
    return check();
  }

  [[nodiscard]] std::string check() const {
    if (!storage_.fault.empty()) return storage_.fault;
    for (const Addressed& use : addressed_) {
      if (!storage_.backs(use.address, use.bytes)) return "L11: addresses that work still uses";
    }
    const MemoryUsage usage = pool_.usage();
    if (usage.number_allocs != live_.size() || usage.bytes_in_use != in_use_) return "usage";
    if (usage.bytes_reserved != storage_.mapped) return "bytes reserved";
    if (usage.bytes_reserved != pool_.reserved() || usage.number_allocs != pool_.live()) return "accessors";
    if (usage.bytes_reserved > std::max(pool_.capacity(), reserved_when_set_)) return "L7: more than the capacity";
    return {};
  }

  [[nodiscard]] std::size_t live() const noexcept { return live_.size(); }
  [[nodiscard]] MemoryPool<Storage, PaperClock>& pool() noexcept { return pool_; }

 private:
  struct Addressed {
    MemoryAddress address;
    std::size_t bytes;
    StreamPosition at;
  };
  struct Use {
    std::uint64_t begin;  // of memory, not of addresses
    std::uint64_t end;
    StreamPosition at;
  };

  [[nodiscard]] bool waits_for_another(const MemoryAllocation& allocation, StreamSlot stream) const noexcept {
    const StreamPosition after = allocation.after;
    return after.stream != no_stream && after.stream != stream && clock_.completed(after.stream) < after.position;
  }

  void forget_uses(const Range& range) {
    std::vector<Use> left;
    for (const Use& use : uses_) {
      if (use.begin < range.begin) left.push_back({use.begin, std::min(use.end, range.begin), use.at});
      if (use.end > range.end) left.push_back({std::max(use.begin, range.end), use.end, use.at});
    }
    uses_ = std::move(left);
  }

  Storage& storage_;
  MemoryPoolOptions options_;
  PaperClock clock_;
  MemoryPool<Storage, PaperClock> pool_;
  std::map<MemoryAddress, MemoryAllocation> live_;
  std::map<MemoryAddress, std::size_t> asked_;
  std::map<std::uint64_t, std::uint64_t> live_memory_;            // begin and end of each piece
  std::vector<std::pair<StreamPosition, StreamPosition>> waits_;  // a use, and what its stream waited for before it
  std::vector<Addressed> addressed_;
  std::vector<Use> uses_;  // not done when last looked at
  std::vector<std::uint64_t> submitted_ = std::vector<std::uint64_t>(8);
  std::size_t in_use_ = 0;
  std::size_t reserved_when_set_ = 0;  // when the capacity was
};

}  // namespace cox::test
