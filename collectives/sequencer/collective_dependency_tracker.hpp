#pragma once

#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

namespace cox::detail {

/// The collectives that the work of a stream waits for, each with the first piece of the stream that waits for it. A
/// collective that waits for the stream must not be released before them. Completed collectives are removed. Device
/// thread only.
///
/// The collectives of a communicator are resolved, and complete, in order: a later one stands for the earlier ones. So
/// the cost of a call depends on the number of communicators, and only by its logarithm on that of their collectives.
class CollectiveDependencyTracker {
 public:
  /// The stream waits for `collective` from piece `from` on. `from` must not decrease from call to call. `collective`:
  /// its position in the order of its communicator. Throws std::bad_alloc.
  template <class Clock>
  void add(std::uint64_t from, const StreamPosition& collective, const Clock& clock) {
    if (clock.completed(collective.stream) >= collective.position) return;
    Waits& waits = waits_for(collective.stream, clock);
    if (!waits.empty() && waits.back().position >= collective.position) return;
    while (!waits.empty() && waits.back().from >= from) waits.pop_back();  // the new one stands for them
    waits.push_back({from, collective.position});
  }

  /// Calls `visit(collective)` for the last incomplete collective of each communicator that piece `last` or an earlier
  /// piece waits for.
  template <class Clock, class Visit>
  void for_each_until(std::uint64_t last, const Clock& clock, Visit&& visit) const {
    for (const OfCommunicator& each : communicators_) {
      const Wait* const later = std::ranges::upper_bound(each.waits, last, {}, &Wait::from);
      if (later == each.waits.begin()) continue;
      const std::uint64_t position = std::prev(later)->position;
      if (clock.completed(each.stream) < position) visit(StreamPosition{each.stream, position});
    }
  }

 private:
  struct Wait {
    std::uint64_t from;
    std::uint64_t position;
  };
  using Waits = SmallVector<Wait, 2>;  // both members increase
  struct OfCommunicator {
    StreamSlot stream;
    Waits waits{};
  };

  /// Without its completed ones, if these are half of it or more: so removing costs O(1) for each.
  template <class Clock>
  Waits& waits_for(StreamSlot stream, const Clock& clock) {
    const auto count_completed = [&](const OfCommunicator& each) {
      return std::ranges::upper_bound(each.waits, clock.completed(each.stream), {}, &Wait::position) -
             each.waits.begin();
    };
    for (OfCommunicator& each : communicators_) {
      if (each.stream != stream) continue;
      const auto completed = count_completed(each);
      if (2 * static_cast<std::size_t>(completed) >= each.waits.size()) {
        std::ranges::copy(each.waits.begin() + completed, each.waits.end(), each.waits.begin());
        for (auto i = completed; i > 0; --i) each.waits.pop_back();
      }
      return each.waits;
    }
    for (std::size_t i = communicators_.size(); i > 0; --i) {
      OfCommunicator& each = communicators_[i - 1];
      if (static_cast<std::size_t>(count_completed(each)) < each.waits.size()) continue;
      if (i < communicators_.size()) each = std::move(communicators_.back());
      communicators_.pop_back();
    }
    return communicators_.emplace_back(OfCommunicator{.stream = stream}).waits;
  }

  SmallVector<OfCommunicator, 1> communicators_;
};

}  // namespace cox::detail
