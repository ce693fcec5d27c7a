#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cox {

/// The type of one element of a tensor. The order is that of `element_types`.
enum class ElementType : std::uint8_t {
  Bool,
  I8,
  I16,
  I32,
  I64,
  U8,
  U16,
  U32,
  U64,
  F8E4M3,
  F8E5M2,
  F16,
  BF16,
  F32,
  F64,
};

struct ElementTypeFacts {
  ElementType type;
  std::string_view name;
  std::size_t size;  ///< bytes
};

inline constexpr std::array element_types{
    ElementTypeFacts{ElementType::Bool, "bool", 1},     ElementTypeFacts{ElementType::I8, "i8", 1},
    ElementTypeFacts{ElementType::I16, "i16", 2},       ElementTypeFacts{ElementType::I32, "i32", 4},
    ElementTypeFacts{ElementType::I64, "i64", 8},       ElementTypeFacts{ElementType::U8, "u8", 1},
    ElementTypeFacts{ElementType::U16, "u16", 2},       ElementTypeFacts{ElementType::U32, "u32", 4},
    ElementTypeFacts{ElementType::U64, "u64", 8},       ElementTypeFacts{ElementType::F8E4M3, "f8e4m3", 1},
    ElementTypeFacts{ElementType::F8E5M2, "f8e5m2", 1}, ElementTypeFacts{ElementType::F16, "f16", 2},
    ElementTypeFacts{ElementType::BF16, "bf16", 2},     ElementTypeFacts{ElementType::F32, "f32", 4},
    ElementTypeFacts{ElementType::F64, "f64", 8},
};

namespace detail {
constexpr bool element_types_are_in_order() {
  for (std::size_t i = 0; i < element_types.size(); ++i)
    if (static_cast<std::size_t>(element_types[i].type) != i) return false;
  return true;
}
}  // namespace detail
static_assert(element_types.size() == static_cast<std::size_t>(ElementType::F64) + 1);
static_assert(detail::element_types_are_in_order());

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t element_size(ElementType type) noexcept {
  return element_types[static_cast<std::size_t>(type)].size;
}
[[nodiscard]] constexpr std::string_view to_string(ElementType type) noexcept {
  return element_types[static_cast<std::size_t>(type)].name;
}

}  // namespace cox
