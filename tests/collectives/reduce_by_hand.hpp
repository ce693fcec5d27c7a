#pragma once

#include <coxswain/tests/collectives/narrow_float_oracle.hpp>

#include <coxswain/runtime/communication/reducible_types.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace cox::test {

using Bytes = std::vector<std::byte>;

inline constexpr std::array all_reduce_operations{ReduceOperation::Sum, ReduceOperation::Mean, ReduceOperation::Min,
                                                  ReduceOperation::Max, ReduceOperation::Product};

__extension__ using Signed128 = __int128;
__extension__ using Unsigned128 = unsigned __int128;

inline std::vector<ElementType> all_reducible_types() {
  std::vector<ElementType> types;
  for (const auto& facts : reducible_types)
    if (facts.accumulate_type) types.push_back(facts.type);
  return types;
}

// ---- The naive way: one element at a time, from its pattern to its pattern.

template <typename T>
std::uint64_t integers_by_hand(ReduceOperation operation, const std::vector<std::uint64_t>& patterns) {
  std::vector<Signed128> values;
  for (const std::uint64_t pattern : patterns) values.push_back(static_cast<T>(pattern));
  auto result = static_cast<Unsigned128>(values.front());  // wraps, and so do the patterns cut from it
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (operation == ReduceOperation::Sum || operation == ReduceOperation::Mean)
      result += static_cast<Unsigned128>(values[i]);
    else if (operation == ReduceOperation::Product)
      result *= static_cast<Unsigned128>(values[i]);
    else if ((operation == ReduceOperation::Min) == (values[i] < static_cast<Signed128>(result)))
      result = static_cast<Unsigned128>(values[i]);
  }
  if (operation == ReduceOperation::Mean)
    result = static_cast<Unsigned128>(static_cast<Signed128>(result) / static_cast<Signed128>(values.size()));
  return static_cast<std::make_unsigned_t<T>>(result);
}

// Rounds after every step, as T does: a double has more than twice the bits of a float, so that rounding a double
// operation to float is that operation in float.
template <typename T>
double floats_by_hand(ReduceOperation operation, const std::vector<double>& values) {
  double result = values.front();
  for (std::size_t i = 1; i < values.size(); ++i) {
    const double next = values[i];
    if (operation == ReduceOperation::Product)
      result = static_cast<T>(result * next);
    else if (operation == ReduceOperation::Sum || operation == ReduceOperation::Mean)
      result = static_cast<T>(result + next);
    else if (std::isnan(next) || (operation == ReduceOperation::Min ? next < result : next > result))
      result = std::isnan(result) ? result : next;
  }
  return operation == ReduceOperation::Mean ? static_cast<T>(result / static_cast<double>(values.size())) : result;
}

inline std::uint64_t narrow_by_hand(const NarrowFloatOracle& oracle, ReduceOperation operation,
                                    const std::vector<std::uint64_t>& patterns) {
  std::vector<double> values;
  for (const std::uint64_t pattern : patterns) values.push_back(oracle.decode(static_cast<std::uint32_t>(pattern)));
  return oracle.encode(floats_by_hand<float>(operation, values));
}

template <typename T, typename Pattern>
std::uint64_t plain_floats_by_hand(ReduceOperation operation, const std::vector<std::uint64_t>& patterns) {
  std::vector<double> values;
  for (const std::uint64_t pattern : patterns)
    values.push_back(static_cast<double>(std::bit_cast<T>(static_cast<Pattern>(pattern))));
  const double result = floats_by_hand<T>(operation, values);
  return std::bit_cast<Pattern>(std::isnan(result) ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(result));
}

inline std::uint64_t by_hand(ElementType type, ReduceOperation operation, const std::vector<std::uint64_t>& patterns) {
  switch (type) {
    case ElementType::I8: return integers_by_hand<std::int8_t>(operation, patterns);
    case ElementType::I16: return integers_by_hand<std::int16_t>(operation, patterns);
    case ElementType::I32: return integers_by_hand<std::int32_t>(operation, patterns);
    case ElementType::I64: return integers_by_hand<std::int64_t>(operation, patterns);
    case ElementType::U8: return integers_by_hand<std::uint8_t>(operation, patterns);
    case ElementType::U16: return integers_by_hand<std::uint16_t>(operation, patterns);
    case ElementType::U32: return integers_by_hand<std::uint32_t>(operation, patterns);
    case ElementType::U64: return integers_by_hand<std::uint64_t>(operation, patterns);
    case ElementType::F8E4M3: return narrow_by_hand(f8e4m3_oracle(), operation, patterns);
    case ElementType::F8E5M2: return narrow_by_hand(f8e5m2_oracle(), operation, patterns);
    case ElementType::F16: return narrow_by_hand(f16_oracle(), operation, patterns);
    case ElementType::BF16: return narrow_by_hand(bf16_oracle(), operation, patterns);
    case ElementType::F32: return plain_floats_by_hand<float, std::uint32_t>(operation, patterns);
    case ElementType::F64: return plain_floats_by_hand<double, std::uint64_t>(operation, patterns);
    case ElementType::Bool: break;
  }
  throw std::logic_error("bool is not reduced");
}

inline std::uint64_t pattern_at(const Bytes& tensor, std::size_t size, std::size_t element) {
  std::uint64_t pattern = 0;
  std::memcpy(&pattern, tensor.data() + element * size, size);  // little-endian
  return pattern;
}

// ---- What is reduced.

inline Bytes any_patterns(ElementType type, std::size_t elements, std::mt19937_64& random) {
  Bytes tensor(elements * element_size(type));
  for (std::byte& byte : tensor) byte = static_cast<std::byte>(random());
  return tensor;
}

// Of similar size, so that every addition rounds: the upper bits of the exponent are those of 1.
inline Bytes near_one(ElementType type, std::size_t elements, std::mt19937_64& random) {
  Bytes tensor = any_patterns(type, elements, random);
  const std::size_t size = element_size(type);
  for (std::size_t last = size - 1; last < tensor.size(); last += size)
    tensor[last] = (tensor[last] & std::byte{0x83}) | std::byte{0x3c};
  return tensor;
}

}  // namespace cox::test
