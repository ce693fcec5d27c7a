#pragma once

#include <coxswain/runtime/trace/trace_event.hpp>

#include <cstdint>
#include <vector>

namespace cox::trace::detail {

/// A stretch of time in one row of a drawing.
struct Slice {
  std::uint64_t begin;
  std::uint64_t end;
  const Event* event;
  bool handed_over;  ///< Not the event itself, but the moment at which it was handed over.
};

/// Orders the slices of one row, gives those that mark a moment a length that can be seen, and cuts what overlaps,
/// so that of any two slices either one contains the other or they lie apart.
void arrange(std::vector<Slice>& row);

}  // namespace cox::trace::detail
