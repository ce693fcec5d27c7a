#pragma once

#include <coxswain/runtime/trace/trace_event.hpp>

#include <cstdint>
#include <vector>

namespace cox::trace::detail {

/// An interval in one row of the timeline.
struct Slice {
  std::uint64_t begin;
  std::uint64_t end;
  const Event* event;
  bool handed_over;  ///< Marks the moment at which the work was handed over, not the event itself.
};

/// Sorts the slices of one row, gives those that mark a moment a visible length, and shortens overlapping slices, so
/// that of any two slices either one contains the other or they are disjoint.
void arrange(std::vector<Slice>& row);

}  // namespace cox::trace::detail
