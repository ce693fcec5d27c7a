#include <coxswain/collectives/detail/reduce.hpp>

#include <coxswain/collectives/detail/float_formats.hpp>
#include <coxswain/runtime/communication/reducible_types.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace cox::detail {
namespace {

// encode() lets only one NaN out: which one an addition yields is up to the processor and to the order in which the
// compiler passes its operands.

// Elements that are computed in their own type.
template <ElementType element_type, typename T>
struct Plain {
  static constexpr ElementType type = element_type;
  using Stored = T;
  using Computed = T;
  static T decode(T value) noexcept { return value; }
  static T encode(T value) noexcept {
    if constexpr (std::floating_point<T>) return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
    return value;
  }
};

// Elements that are computed in float.
template <ElementType element_type, typename Format>
struct Narrow {
  static constexpr ElementType type = element_type;
  using Stored = typename Format::Bits;
  using Computed = float;
  static float decode(Stored bits) noexcept { return Format::decode(bits); }
  // Without a branch here, or the loop is not vectorised.
  static Stored encode(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
    return Format::encode(std::bit_cast<float>(choose(is_nan, 0x7fc00000U, bits)));
  }
};

// Where the sum of any number of integers does not overflow.
__extension__ using Signed128 = __int128;
__extension__ using Unsigned128 = unsigned __int128;
template <typename T>
using Wide = std::conditional_t<std::is_signed_v<T>, std::conditional_t<sizeof(T) < 8, std::int64_t, Signed128>,
                                std::conditional_t<sizeof(T) < 8, std::uint64_t, Unsigned128>>;

template <typename Element, ReduceOperation operation>
struct AccumulatorOf {
  using type = typename Element::Computed;
};
template <typename Element>
  requires std::integral<typename Element::Computed>
struct AccumulatorOf<Element, ReduceOperation::Mean> {
  using type = Wide<typename Element::Computed>;
};
template <typename Element, ReduceOperation operation>
using Accumulator = typename AccumulatorOf<Element, operation>::type;

// Integers wrap: they are computed without a sign, and not in int, where the product of two 16-bit ones could overflow.
template <typename T>
using Wrapping = std::conditional_t<sizeof(T) < 8, std::uint32_t, std::uint64_t>;

template <typename T>
T sum_of(T a, T b) noexcept {
  if constexpr (std::integral<T>)
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  else
    return a + b;
}

template <typename T>
T product_of(T a, T b) noexcept {
  if constexpr (std::integral<T>)
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  else
    return a * b;
}

// The first of equal values; a NaN of either side wins.
template <ReduceOperation operation, typename T>
T extreme_of(T a, T b) noexcept {
  bool take = operation == ReduceOperation::Min ? b < a : a < b;
  if constexpr (std::floating_point<T>) take = take | std::isnan(b);
  return take ? b : a;
}

template <ReduceOperation operation, typename T>
T combined(T a, T b) noexcept {
  if constexpr (operation == ReduceOperation::Sum)
    return sum_of(a, b);
  else if constexpr (operation == ReduceOperation::Mean)
    return a + b;  // integers are wide here
  else if constexpr (operation == ReduceOperation::Product)
    return product_of(a, b);
  else
    return extreme_of<operation>(a, b);
}

template <typename Element, ReduceOperation operation>
typename Element::Stored finished(Accumulator<Element, operation> value,
                                  Accumulator<Element, operation> ranks) noexcept {
  if constexpr (operation == ReduceOperation::Mean) value = value / ranks;
  return Element::encode(static_cast<typename Element::Computed>(value));
}

// Loops run over steps of a constant number of elements: compilers vectorise those without asking for more than -O2.
constexpr std::size_t step = 64;
// The accumulators of a block stay in the first-level cache while the contributions stream by.
constexpr std::size_t block = 1024;
static_assert(block % step == 0);

template <typename Element, ReduceOperation operation>
class Block {
 public:
  using Stored = typename Element::Stored;
  using Value = Accumulator<Element, operation>;

  explicit Block(std::size_t count) noexcept : count_(count) {}

  void begin(const std::byte* from) noexcept {
    each_step(from, [](Value* values, const std::byte* elements) {
      for (std::size_t i = 0; i < step; ++i) values[i] = loaded(elements, i);
    });
  }
  void add(const std::byte* from) noexcept {
    each_step(from, [](Value* __restrict values, const std::byte* __restrict elements) {
      for (std::size_t i = 0; i < step; ++i) values[i] = combined<operation>(values[i], loaded(elements, i));
    });
  }
  void finish(std::byte* to, std::size_t ranks) const noexcept {
    std::array<Stored, step> elements;
    for (std::size_t at = 0; at < count_; at += step) {
      for (std::size_t i = 0; i < step; ++i)
        elements[i] = finished<Element, operation>(values_[at + i], static_cast<Value>(ranks));
      std::memcpy(to + at * sizeof(Stored), elements.data(), std::min(step, count_ - at) * sizeof(Stored));
    }
  }

 private:
  static Value loaded(const std::byte* elements, std::size_t i) noexcept {
    Stored element;
    std::memcpy(&element, elements + i * sizeof(Stored), sizeof(Stored));
    return static_cast<Value>(Element::decode(element));
  }

  // The last step is filled up with zeros if need be: a full one is taken as it lies.
  template <typename Use>
  void each_step(const std::byte* from, Use use) noexcept {
    std::size_t at = 0;
    for (; at + step <= count_; at += step) use(values_.data() + at, from + at * sizeof(Stored));
    if (at == count_) return;
    std::array<std::byte, step * sizeof(Stored)> filled{};
    std::memcpy(filled.data(), from + at * sizeof(Stored), (count_ - at) * sizeof(Stored));
    use(values_.data() + at, filled.data());
  }

  std::size_t count_;
  alignas(64) std::array<Value, block> values_;
};

// All contributions to a block are read before it is written, which is what makes reducing in place right.
template <typename Element, ReduceOperation operation>
void reduce_elements(Contributions contributions, ElementRange range, std::byte* to) noexcept {
  constexpr std::size_t size = sizeof(typename Element::Stored);
  for (std::size_t at = 0; at < range.count; at += block) {
    Block<Element, operation> values(std::min(block, range.count - at));
    const std::size_t offset = (range.first + at) * size;
    values.begin(contributions[0] + offset);
    for (std::size_t rank = 1; rank < contributions.size(); ++rank) values.add(contributions[rank] + offset);
    values.finish(to + at * size, contributions.size());
  }
}

using Reduction = void (*)(Contributions, ElementRange, std::byte*) noexcept;
using Reductions = std::array<std::array<Reduction, reduce_operation_names.size()>, element_types.size()>;

template <typename Element>
constexpr void enter(Reductions& reductions) {
  static_assert(sizeof(typename Element::Stored) == element_size(Element::type));
  static_assert(accumulate_type(Element::type) ==
                (std::same_as<typename Element::Computed, float> ? ElementType::F32 : Element::type));
  reductions[static_cast<std::size_t>(Element::type)] = {
      reduce_elements<Element, ReduceOperation::Sum>, reduce_elements<Element, ReduceOperation::Mean>,
      reduce_elements<Element, ReduceOperation::Min>, reduce_elements<Element, ReduceOperation::Max>,
      reduce_elements<Element, ReduceOperation::Product>};
}

template <typename... Elements>
struct ElementList {
  static constexpr std::array types{Elements::type...};

  static constexpr Reductions reductions() {
    Reductions reductions{};
    (enter<Elements>(reductions), ...);
    return reductions;
  }
};

using ReducibleElements =
    ElementList<Plain<ElementType::I8, std::int8_t>, Plain<ElementType::I16, std::int16_t>,
                Plain<ElementType::I32, std::int32_t>, Plain<ElementType::I64, std::int64_t>,
                Plain<ElementType::U8, std::uint8_t>, Plain<ElementType::U16, std::uint16_t>,
                Plain<ElementType::U32, std::uint32_t>, Plain<ElementType::U64, std::uint64_t>,
                Narrow<ElementType::F8E4M3, F8E4M3>, Narrow<ElementType::F8E5M2, F8E5M2>, Narrow<ElementType::F16, F16>,
                Narrow<ElementType::BF16, BF16>, Plain<ElementType::F32, float>, Plain<ElementType::F64, double>>;

constexpr Reductions reductions = ReducibleElements::reductions();

constexpr bool reductions_are_complete() {
  for (const ElementTypeFacts& facts : element_types)
    if (std::ranges::count(ReducibleElements::types, facts.type) != (can_reduce(facts.type) ? 1 : 0)) return false;
  return true;
}
static_assert(reductions_are_complete());

}  // namespace

void reduce_range(ElementType type, ReduceOperation operation, Contributions contributions, ElementRange range,
                  std::byte* to) noexcept {
  reductions[static_cast<std::size_t>(type)][static_cast<std::size_t>(operation)](contributions, range, to);
}

void reduce(ElementType type, ReduceOperation operation, std::span<const std::byte* const> contributions,
            ElementRange range, std::byte* to) {
  require_reducible(type, operation);
  reduce_range(type, operation, Contributions(contributions), range, to + range.first * element_size(type));
}

void reduce(ElementType type, ReduceOperation operation, std::span<const std::byte* const> contributions,
            std::size_t elements, std::byte* to) {
  reduce(type, operation, contributions, ElementRange{0, elements}, to);
}

}  // namespace cox::detail
