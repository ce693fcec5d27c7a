#pragma once

#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/communication/reducible_types.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <array>
#include <cstddef>
#include <optional>

namespace cox::detail {

/// NCCL's ncclDataType_t.
enum class NcclType : int {
  Int8 = 0,
  Uint8 = 1,
  Int32 = 2,
  Uint32 = 3,
  Int64 = 4,
  Uint64 = 5,
  Float16 = 6,
  Float32 = 7,
  Float64 = 8,
  Bfloat16 = 9,
  Float8E4M3 = 10,  ///< since 2.24
  Float8E5M2 = 11,  ///< since 2.24
};

/// NCCL's ncclRedOp_t.
enum class NcclReduction : int { Sum = 0, Product = 1, Max = 2, Min = 3, Mean = 4 };

struct NcclTypeOf {
  ElementType type;
  std::optional<NcclType> nccl;  ///< nothing: NCCL does not reduce this type
};

inline constexpr std::array nccl_types{
    NcclTypeOf{ElementType::Bool, std::nullopt},
    NcclTypeOf{ElementType::I8, NcclType::Int8},
    NcclTypeOf{ElementType::I16, std::nullopt},
    NcclTypeOf{ElementType::I32, NcclType::Int32},
    NcclTypeOf{ElementType::I64, NcclType::Int64},
    NcclTypeOf{ElementType::U8, NcclType::Uint8},
    NcclTypeOf{ElementType::U16, std::nullopt},
    NcclTypeOf{ElementType::U32, NcclType::Uint32},
    NcclTypeOf{ElementType::U64, NcclType::Uint64},
    NcclTypeOf{ElementType::F8E4M3, NcclType::Float8E4M3},
    NcclTypeOf{ElementType::F8E5M2, NcclType::Float8E5M2},
    NcclTypeOf{ElementType::F16, NcclType::Float16},
    NcclTypeOf{ElementType::BF16, NcclType::Bfloat16},
    NcclTypeOf{ElementType::F32, NcclType::Float32},
    NcclTypeOf{ElementType::F64, NcclType::Float64},
};

struct NcclReductionOf {
  ReduceOperation operation;
  NcclReduction nccl;
};

inline constexpr std::array nccl_reductions{
    NcclReductionOf{ReduceOperation::Sum, NcclReduction::Sum},
    NcclReductionOf{ReduceOperation::Mean, NcclReduction::Mean},
    NcclReductionOf{ReduceOperation::Min, NcclReduction::Min},
    NcclReductionOf{ReduceOperation::Max, NcclReduction::Max},
    NcclReductionOf{ReduceOperation::Product, NcclReduction::Product},
};

constexpr bool nccl_tables_are_in_order() {
  for (std::size_t i = 0; i < nccl_types.size(); ++i)
    if (nccl_types[i].type != element_types[i].type) return false;
  for (std::size_t i = 0; i < nccl_reductions.size(); ++i)
    if (static_cast<std::size_t>(nccl_reductions[i].operation) != i) return false;
  return true;
}
/// All types that NCCL reduces can also be reduced on host devices.
constexpr bool nccl_reduces_what_is_reducible() {
  for (const NcclTypeOf& entry : nccl_types)
    if (entry.nccl && !can_reduce(entry.type)) return false;
  return true;
}
static_assert(nccl_types.size() == element_types.size());
static_assert(nccl_reductions.size() == reduce_operation_names.size());
static_assert(nccl_tables_are_in_order());
static_assert(nccl_reduces_what_is_reducible());

/// Nothing if NCCL does not reduce elements of this type. Operations that only move elements move them as Uint8.
[[nodiscard]] constexpr std::optional<NcclType> nccl_type(ElementType type) noexcept {
  return nccl_types[static_cast<std::size_t>(type)].nccl;
}
/// Whether an NCCL of that version (in NCCL's encoding: 22809 is 2.28.9) reduces elements of this type.
[[nodiscard]] constexpr bool nccl_reduces(ElementType type, int version) noexcept {
  constexpr int first_with_float8 = 22400;
  const std::optional<NcclType> found = nccl_type(type);
  const bool is_float8 = found == NcclType::Float8E4M3 || found == NcclType::Float8E5M2;
  return found && (!is_float8 || version >= first_with_float8);
}
[[nodiscard]] constexpr NcclReduction nccl_reduction(ReduceOperation operation) noexcept {
  return nccl_reductions[static_cast<std::size_t>(operation)].nccl;
}

}  // namespace cox::detail
