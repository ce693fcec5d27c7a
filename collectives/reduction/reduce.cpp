#include <coxswain/collectives/reduction/reduce.hpp>

#include <coxswain/collectives/reduction/narrow_codec.hpp>
#include <coxswain/collectives/reduction/reduction_loop.hpp>
#include <coxswain/runtime/communication/reducible_types.hpp>

#include <algorithm>
#include <array>
#include <cstdint>

namespace cox::detail {
namespace {

using PlainReduction = void (*)(const RankInputs&, ElementRange, std::byte*) noexcept;
using NarrowReduction = void (*)(const NarrowCodec&, std::size_t size, const RankInputs&, ElementRange,
                                 std::byte*) noexcept;
using PlainReductions = std::array<PlainReduction, reduce_operation_names.size()>;
using NarrowReductions = std::array<NarrowReduction, reduce_operation_names.size()>;

struct Portable {
  template <typename Element, ReduceOperation operation>
  static void plain(const RankInputs& contributions, ElementRange range, std::byte* to) noexcept {
    reduce_plain<Element, operation>(contributions, range, to);
  }
  template <ReduceOperation operation>
  static void narrow(const NarrowCodec& codec, std::size_t size, const RankInputs& contributions, ElementRange range,
                     std::byte* to) noexcept {
    reduce_narrow<operation>(codec, size, contributions, range, to);
  }
};

struct Avx2 {
  template <typename Element, ReduceOperation operation>
  COX_TARGET_AVX2 static void plain(const RankInputs& contributions, ElementRange range, std::byte* to) noexcept {
    reduce_plain<Element, operation>(contributions, range, to);
  }
  template <ReduceOperation operation>
  COX_TARGET_AVX2 static void narrow(const NarrowCodec& codec, std::size_t size, const RankInputs& contributions,
                                     ElementRange range, std::byte* to) noexcept {
    reduce_narrow<operation>(codec, size, contributions, range, to);
  }
};

template <typename Compiled, typename Element>
constexpr PlainReductions plain_reductions() {
  return {
      Compiled::template plain<Element, ReduceOperation::Sum>, Compiled::template plain<Element, ReduceOperation::Mean>,
      Compiled::template plain<Element, ReduceOperation::Min>, Compiled::template plain<Element, ReduceOperation::Max>,
      Compiled::template plain<Element, ReduceOperation::Product>};
}

template <typename Compiled>
constexpr NarrowReductions narrow_reductions() {
  return {Compiled::template narrow<ReduceOperation::Sum>, Compiled::template narrow<ReduceOperation::Mean>,
          Compiled::template narrow<ReduceOperation::Min>, Compiled::template narrow<ReduceOperation::Max>,
          Compiled::template narrow<ReduceOperation::Product>};
}

template <typename... Elements>
struct ElementList {
  static constexpr std::array types{Elements::type...};

  template <typename Compiled>
  static constexpr auto reductions() {
    static_assert(((sizeof(typename Elements::Stored) == element_size(Elements::type)) && ...));
    std::array<PlainReductions, element_types.size()> reductions{};
    ((reductions[static_cast<std::size_t>(Elements::type)] = plain_reductions<Compiled, Elements>()), ...);
    return reductions;
  }
};

using PlainElements = ElementList<Plain<ElementType::I8, std::int8_t>, Plain<ElementType::I16, std::int16_t>,
                                  Plain<ElementType::I32, std::int32_t>, Plain<ElementType::I64, std::int64_t>,
                                  Plain<ElementType::U8, std::uint8_t>, Plain<ElementType::U16, std::uint16_t>,
                                  Plain<ElementType::U32, std::uint32_t>, Plain<ElementType::U64, std::uint64_t>,
                                  Plain<ElementType::F32, float>, Plain<ElementType::F64, double>>;

constexpr bool plain_elements_are_those_computed_in_their_own_type() {
  return std::ranges::all_of(element_types, [](const ElementTypeFacts& facts) {
    return std::ranges::count(PlainElements::types, facts.type) == (accumulate_type(facts.type) == facts.type ? 1 : 0);
  });
}
static_assert(plain_elements_are_those_computed_in_their_own_type());

// By instruction set.
constexpr std::array plain{PlainElements::reductions<Portable>(), PlainElements::reductions<Avx2>()};
constexpr std::array narrow{narrow_reductions<Portable>(), narrow_reductions<Avx2>()};
static_assert(plain.size() == instruction_sets.size() && narrow.size() == instruction_sets.size());

template <typename Enum>
constexpr std::size_t index_of(Enum value) noexcept {
  return static_cast<std::size_t>(value);
}

}  // namespace

void reduce_range(InstructionSet set, ElementType type, ReduceOperation operation, const RankInputs& contributions,
                  ElementRange range, std::byte* to) noexcept {
  if (const NarrowCodec* const codec = narrow_codec(set, type))
    narrow[index_of(set)][index_of(operation)](*codec, element_size(type), contributions, range, to);
  else
    plain[index_of(set)][index_of(type)][index_of(operation)](contributions, range, to);
}

void reduce_range(ElementType type, ReduceOperation operation, const RankInputs& contributions, ElementRange range,
                  std::byte* to) noexcept {
  reduce_range(best_instruction_set(), type, operation, contributions, range, to);
}

void reduce(ElementType type, ReduceOperation operation, std::span<const std::byte* const> contributions,
            ElementRange range, std::byte* to) {
  require_reducible(type, operation);
  reduce_range(type, operation, RankInputs(contributions), range, to + range.first * element_size(type));
}

void reduce(ElementType type, ReduceOperation operation, std::span<const std::byte* const> contributions,
            std::size_t elements, std::byte* to) {
  reduce(type, operation, contributions, ElementRange{0, elements}, to);
}

}  // namespace cox::detail
