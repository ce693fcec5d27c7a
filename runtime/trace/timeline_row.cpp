#include <coxswain/runtime/trace/timeline_row.hpp>

#include <algorithm>
#include <cstddef>
#include <tuple>

namespace cox::trace::detail {
namespace {

constexpr std::uint64_t moment = 100;  // ns

// Gives each slice that marks a moment a visible length. It ends at the latest when the next slice begins, but is at
// least 1 ns long.
void lengthen_moments(std::vector<Slice>& row) {
  Slice* last = nullptr;
  for (Slice& slice : row) {
    if (last != nullptr) last->end = std::clamp(slice.begin, last->begin + 1, last->begin + moment);
    last = nullptr;
    if (!slice.handed_over) continue;
    slice.end = slice.begin + moment;
    last = &slice;
  }
}

void order(std::vector<Slice>& row) {
  std::ranges::stable_sort(row, {}, [](const Slice& slice) { return std::tuple(slice.begin, ~slice.end); });
}

}  // namespace

void arrange(std::vector<Slice>& row) {
  order(row);
  lengthen_moments(row);
  std::vector<Slice*> open;
  for (Slice& slice : row) {
    while (!open.empty() && open.back()->end <= slice.begin) open.pop_back();
    if (slice.handed_over && !open.empty() && !open.back()->handed_over) {
      slice.end = std::min(slice.end, open.back()->end);  // keep it inside the enclosing slice of its thread
    }
    while (!open.empty() && open.back()->end < slice.end) {  // clock readings may be slightly out of order
      open.back()->end = std::max(open.back()->begin, slice.begin);
      open.pop_back();
    }
    open.push_back(&slice);
  }
  order(row);
}

}  // namespace cox::trace::detail
