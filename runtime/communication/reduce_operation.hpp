#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cox {

/// How the contributions of all ranks are combined.
enum class ReduceOperation : std::uint8_t {
  Sum,
  Mean,  ///< The sum divided by the world size; integers round towards zero.
  Min,
  Max,
  Product,
};

inline constexpr std::array<std::string_view, 5> reduce_operation_names{"sum", "mean", "min", "max", "product"};
static_assert(reduce_operation_names.size() == static_cast<std::size_t>(ReduceOperation::Product) + 1);

[[nodiscard]] constexpr std::string_view to_string(ReduceOperation operation) noexcept {
  return reduce_operation_names[static_cast<std::size_t>(operation)];
}

}  // namespace cox
