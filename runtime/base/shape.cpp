#include <coxswain/runtime/base/shape.hpp>

#include <algorithm>
#include <limits>

namespace cox {

std::optional<std::size_t> element_count(const Shape& shape) noexcept {
  if (std::find(shape.begin(), shape.end(), std::size_t{0}) != shape.end()) return 0;
  std::optional<std::size_t> count = 1;
  for (const std::size_t extent : shape) {
    count = checked_product(*count, extent);
    if (!count) return std::nullopt;
  }
  return count;
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = Strides::filled(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = checked_product(strides[i], std::max<std::size_t>(shape[i], 1))
                         .value_or(std::numeric_limits<std::size_t>::max());
  return strides;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace cox
