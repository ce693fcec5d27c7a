#pragma once

// What collectives are tested with, by value: small whole numbers as elements of any type, and what becomes of them.

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace cox::test {

/// A small whole number as an element: exact in all types up to 8.
[[nodiscard]] inline std::uint64_t element_of(ElementType type, unsigned value) {
  const auto small_float = [value](unsigned mantissa, unsigned bias) -> std::uint64_t {
    if (value == 0) return 0;
    const auto exponent = static_cast<unsigned>(std::bit_width(value)) - 1;
    const std::uint64_t fraction =
        (std::uint64_t{value} << (mantissa - exponent)) & ((std::uint64_t{1} << mantissa) - 1);
    return std::uint64_t{exponent + bias} << mantissa | fraction;
  };
  switch (type) {
    case ElementType::F8E4M3: return small_float(3, 7);
    case ElementType::F8E5M2: return small_float(2, 15);
    case ElementType::F16: return small_float(10, 15);
    case ElementType::BF16: return small_float(7, 127);
    case ElementType::F32: return small_float(23, 127);
    case ElementType::F64: return small_float(52, 1023);
    default: return value;
  }
}

using Values = std::vector<unsigned>;

[[nodiscard]] inline Bytes bytes_of(ElementType type, const Values& values) {
  const std::size_t size = element_size(type);
  std::vector<std::byte> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t element = element_of(type, values[i]);
    std::memcpy(bytes.data() + i * size, &element, size);
  }
  return Bytes::copy_of(bytes);
}

/// 0 and 1, different for each rank: the sum over 8 ranks is exact in every type.
[[nodiscard]] inline Values values_of(std::size_t rank, std::size_t count) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<unsigned>((i / (rank + 1) + rank) % 2);
  return values;
}

[[nodiscard]] inline Values reduced(ReduceOperation operation, std::size_t ranks, std::size_t count) {
  Values result = values_of(0, count);
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    const Values other = values_of(rank, count);
    for (std::size_t i = 0; i < count; ++i) {
      if (operation == ReduceOperation::Sum) result[i] += other[i];
      if (operation == ReduceOperation::Min) result[i] = std::min(result[i], other[i]);
      if (operation == ReduceOperation::Max) result[i] = std::max(result[i], other[i]);
      if (operation == ReduceOperation::Product) result[i] *= other[i];
    }
  }
  return result;
}

[[nodiscard]] inline Values part_of(const Values& all, std::size_t part, std::size_t parts) {
  const std::size_t size = all.size() / parts;
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(part * size);
  return {first, first + static_cast<std::ptrdiff_t>(size)};
}

/// `ranks` blocks from `first` on, of each rank's values, with 7 elements behind them. The last rank is the root.
struct BlocksInPlace {
  std::size_t ranks;
  std::size_t first;
  std::size_t block;

  [[nodiscard]] std::size_t count() const noexcept { return first + block * ranks + 7; }
  /// What the rank has after such an operation in place: AllGather, ReduceScatter or Broadcast.
  [[nodiscard]] Values after(CollectiveOperation operation, std::size_t rank) const {
    Values result = values_of(rank, count());
    const Values sum = reduced(ReduceOperation::Sum, ranks, count());
    for (std::size_t of = 0; of < ranks; ++of) {
      const Values from = values_of(operation == CollectiveOperation::Broadcast ? ranks - 1 : of, count());
      for (std::size_t i = first + of * block; i < first + (of + 1) * block; ++i) {
        if (operation != CollectiveOperation::ReduceScatter) {
          result[i] = from[i];
        } else if (of == rank) {
          result[i] = sum[i];
        }
      }
    }
    return result;
  }
};

[[nodiscard]] inline bool equal(const CudaClient& client, const Handle& memory, const Bytes& expected) {
  const Bytes found = client.read_one(memory);
  return found.size() == expected.size() && std::memcmp(found.data(), expected.data(), found.size()) == 0;
}

}  // namespace cox::test
