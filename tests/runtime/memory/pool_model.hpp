#pragma once

#include <coxswain/runtime/memory/memory_pool.hpp>
#include <coxswain/tests/runtime/memory/paper_storage.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace cox::test {

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
        const bool ordered =
            use.at.stream == allocation->last_use.stream && use.at.position <= allocation->last_use.position;
        if (!ordered) return "L11: memory that another stream may still use";
      }
    }
    for (const Range& range : memory) live_memory_[range.begin] = range.end;
    live_[begin] = {*allocation, bytes, memory};
    in_use_ += bytes;
    padding_ += allocation->size - bytes;
    return check();
  }

  /// Frees the n-th live allocation, used by the streams of `users` at positions yet to come.
  std::string free(std::size_t n, const std::vector<StreamSlot>& users) {
    auto chosen = live_.begin();
    std::advance(chosen, static_cast<std::ptrdiff_t>(n % live_.size()));
    std::vector<StreamPosition> positions;
    for (const StreamSlot stream : users) positions.push_back({stream, ++submitted_[static_cast<std::size_t>(stream)]});
    // What the memory was handed out with is still to be waited for, if nobody has.
    const Live gone = chosen->second;
    const MemoryAllocation& allocation = gone.allocation;
    if (const StreamPosition after = allocation.last_use;
        after.stream != no_stream && positions.empty() && clock_.completed(after.stream) < after.position)
      positions.push_back(after);
    for (const StreamPosition& at : positions) {
      if (allocation.last_use.stream != no_stream) waits_.emplace_back(at, allocation.last_use);
      addressed_.push_back({allocation.address, allocation.size, gone.memory, at});
    }
    for (const Range& range : gone.memory) {
      live_memory_.erase(range.begin);
      if (!positions.empty()) forget_uses(range);  // these uses came after those
      for (const StreamPosition& at : positions) uses_.push_back({range.begin, range.end, at});
    }
    if (!pool_.is_live(allocation)) return "a live allocation is not alive";
    pool_.free(allocation, positions);
    if (pool_.is_live(allocation)) return "a freed allocation is alive";
    in_use_ -= gone.bytes;
    padding_ -= allocation.size - gone.bytes;
    live_.erase(chosen);
    return check();
  }

  /// The stream's work goes on: so much of what it has yet to do, and what that waits for on other streams.
  void progress(StreamSlot stream, std::uint64_t percent = 50) {
    auto& done = clock_.done;
    const auto index = static_cast<std::size_t>(stream);
    done[index] += ((submitted_[index] - done[index]) * percent + 99) / 100;
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
    if (usage.number_allocs != live_.size() || usage.bytes_in_use != in_use_ || usage.bytes_padding != padding_)
      return "usage";
    if (usage.bytes_reserved != storage_.mapped) return "bytes reserved";
    if (usage.bytes_reserved != pool_.reserved() || usage.number_allocs != pool_.live()) return "accessors";
    if (usage.bytes_reserved > std::max(pool_.capacity(), reserved_when_set_)) return "L7: more than the capacity";
    return {};
  }

  /// What takes longer: whether the same memory is where it was for all who may still touch it.
  [[nodiscard]] std::string check_all() const {
    for (const auto& [address, live] : live_) {
      if (!storage_.backs(address, live.allocation.size)) return "L11: live memory is not mapped";
      if (storage_.memory_behind(address, live.allocation.size) != live.memory) return "L11: live memory was exchanged";
      if (!pool_.is_live(live.allocation)) return "a live allocation is not alive";
    }
    for (const Addressed& use : addressed_) {
      if (storage_.memory_behind(use.address, use.bytes) != use.memory) return "L11: memory was exchanged under work";
    }
    return pool_.consistent() ? "" : "not consistent";
  }

  /// All work is done. Then the largest memory that whole free granules make up can be had, wherever they are.
  std::string finish_work(StreamSlot stream) {
    finish();
    if constexpr (MappingStorage<Storage>) {
      const std::size_t granularity = storage_.granularity();
      std::set<std::uint64_t> used;
      for (const auto& [begin, end] : live_memory_) used.insert(begin / granularity);  // a range is inside a granule
      const std::size_t whole = pool_.capacity() / granularity;
      if (whole <= used.size()) return {};
      const std::size_t live = live_.size();
      const std::string broken = allocate((whole - used.size()) * granularity, stream);
      return broken.empty() && live_.size() == live ? "memory that is free cannot be had" : broken;
    }
    return {};
  }

  /// All is freed, done and cleaned up. Then nothing is reserved.
  std::string give_everything_back() {
    while (!live_.empty()) {
      const std::string broken = free(0, {StreamSlot{static_cast<std::uint32_t>(live_.size() % submitted_.size())}});
      if (!broken.empty()) return broken;
    }
    finish();
    pool_.cleanup();
    if (pool_.reserved() != 0 || !storage_.empty()) return "L13: something is still reserved";
    return check_all();
  }

  [[nodiscard]] std::size_t live() const noexcept { return live_.size(); }
  [[nodiscard]] MemoryPool<Storage, PaperClock>& pool() noexcept { return pool_; }

 private:
  struct Addressed {
    MemoryAddress address;
    std::size_t bytes;
    std::vector<Range> memory;
    StreamPosition at;
  };
  struct Live {
    MemoryAllocation allocation;
    std::size_t bytes = 0;
    std::vector<Range> memory;  // behind it
  };
  struct Use {
    std::uint64_t begin;  // of memory, not of addresses
    std::uint64_t end;
    StreamPosition at;
  };

  [[nodiscard]] bool waits_for_another(const MemoryAllocation& allocation, StreamSlot stream) const noexcept {
    const StreamPosition after = allocation.last_use;
    return after.stream != no_stream && after.stream != stream && clock_.completed(after.stream) < after.position;
  }

  void finish() {
    for (std::uint32_t slot = 0; slot < submitted_.size(); ++slot) progress(StreamSlot{slot}, 100);
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
  std::map<MemoryAddress, Live> live_;
  std::map<std::uint64_t, std::uint64_t> live_memory_;            // begin and end of each piece
  std::vector<std::pair<StreamPosition, StreamPosition>> waits_;  // a use, and what its stream waited for before it
  std::vector<Addressed> addressed_;
  std::vector<Use> uses_;  // not done when last looked at
  std::vector<std::uint64_t> submitted_ = std::vector<std::uint64_t>(8);
  std::size_t in_use_ = 0;
  std::size_t padding_ = 0;
  std::size_t reserved_when_set_ = 0;  // when the capacity was
};

}  // namespace cox::test
