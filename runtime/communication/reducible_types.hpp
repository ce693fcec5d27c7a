#pragma once

#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <source_location>
#include <string>

namespace cox {

/// Whether elements of a type can be reduced, and in which type the reduction is computed.
struct ReducibleType {
  ElementType type;
  /// The type in which the contributions are added, multiplied and compared; nothing if the type cannot be reduced.
  /// Floats of 8 and 16 bits are rounded once, at the end. Sum and Product of integers wrap. Mean of integers is exact:
  /// its sum cannot overflow.
  std::optional<ElementType> accumulate_type;
};

inline constexpr std::array reducible_types{
    ReducibleType{ElementType::Bool, std::nullopt},       ReducibleType{ElementType::I8, ElementType::I8},
    ReducibleType{ElementType::I16, ElementType::I16},    ReducibleType{ElementType::I32, ElementType::I32},
    ReducibleType{ElementType::I64, ElementType::I64},    ReducibleType{ElementType::U8, ElementType::U8},
    ReducibleType{ElementType::U16, ElementType::U16},    ReducibleType{ElementType::U32, ElementType::U32},
    ReducibleType{ElementType::U64, ElementType::U64},    ReducibleType{ElementType::F8E4M3, ElementType::F32},
    ReducibleType{ElementType::F8E5M2, ElementType::F32}, ReducibleType{ElementType::F16, ElementType::F32},
    ReducibleType{ElementType::BF16, ElementType::F32},   ReducibleType{ElementType::F32, ElementType::F32},
    ReducibleType{ElementType::F64, ElementType::F64},
};

namespace detail {
constexpr bool reducible_types_are_in_order() {
  for (std::size_t i = 0; i < reducible_types.size(); ++i)
    if (reducible_types[i].type != element_types[i].type) return false;
  return true;
}
}  // namespace detail
static_assert(reducible_types.size() == element_types.size());
static_assert(detail::reducible_types_are_in_order());

/// The accumulate_type of `type`; nothing if elements of that type cannot be reduced.
[[nodiscard]] constexpr std::optional<ElementType> accumulate_type(ElementType type) noexcept {
  return reducible_types[static_cast<std::size_t>(type)].accumulate_type;
}
[[nodiscard]] constexpr bool can_reduce(ElementType type) noexcept { return accumulate_type(type).has_value(); }

/// Throws CollectiveError Validation, which names type and operation, if elements of this type cannot be reduced.
inline void require_reducible(ElementType type, ReduceOperation operation,
                              std::source_location site = std::source_location::current()) {
  if (can_reduce(type)) return;
  throw CollectiveError(CollectiveError::Kind::Validation,
                        "no " + std::string(to_string(operation)) + " of " + std::string(to_string(type)) +
                            ": elements of this type cannot be reduced",
                        site);
}

}  // namespace cox
