#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace cox::detail {

/// Elements [first, first + count) of a tensor.
struct ElementRange {
  std::size_t first;
  std::size_t count;

  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

/// The inputs of all ranks for a reduction, in the order of ranks: pointers at a constant stride in memory, contiguous
/// or each a member of a larger object. A view: the pointers must outlive it.
class RankInputs {
 public:
  /// `count` pointers, `stride` bytes apart.
  RankInputs(const std::byte* const* first, std::size_t count, std::size_t stride) noexcept
      : first_(reinterpret_cast<const std::byte*>(first)), count_(count), stride_(stride) {}
  explicit RankInputs(std::span<const std::byte* const> pointers) noexcept
      : RankInputs(pointers.data(), pointers.size(), sizeof(const std::byte*)) {}

  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] const std::byte* operator[](std::size_t rank) const noexcept {
    const std::byte* pointer;
    std::memcpy(&pointer, first_ + rank * stride_, sizeof pointer);
    return pointer;
  }

 private:
  const std::byte* first_;
  std::size_t count_;
  std::size_t stride_;
};

}  // namespace cox::detail
