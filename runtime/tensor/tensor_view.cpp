#include <coxswain/runtime/tensor/tensor_view.hpp>

#include <algorithm>
#include <limits>

namespace cox {

std::optional<std::size_t> span_without_overlap(const Shape& shape, const Strides& strides) {
  struct Dimension {
    std::size_t stride;
    std::size_t extent;
  };
  if (element_count(shape) == 0) return 0;
  SmallVector<Dimension, 6> dimensions;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != 1) dimensions.push_back({strides[i], shape[i]});
  std::ranges::sort(dimensions, {}, &Dimension::stride);
  std::optional<std::size_t> span = 1;
  for (const auto& [stride, extent] : dimensions) {
    if (stride < *span) return std::nullopt;
    const auto to_last = checked_product(extent - 1, stride);
    span = to_last ? checked_sum(*span, *to_last) : to_last;
    if (!span) return std::nullopt;
  }
  return span;
}

Strides canonical_strides(const Shape& shape, Strides strides) {
  if (element_count(shape) == 0) return contiguous_strides(shape);
  const std::size_t rank = shape.size();
  std::size_t outer = 0;  // the stride of the next outer dimension that is used; 0: there is none
  for (std::size_t i = 0; i < rank; ++i) {
    if (shape[i] != 1) {
      outer = strides[i];
    } else {
      strides[i] = i + 1 == rank ? 1 : outer;
    }
  }
  for (std::size_t i = rank; i-- > 0;)
    if (strides[i] == 0 && shape[i] == 1)
      strides[i] = checked_product(shape[i + 1], strides[i + 1]).value_or(std::numeric_limits<std::size_t>::max());
  return strides;
}

}  // namespace cox
