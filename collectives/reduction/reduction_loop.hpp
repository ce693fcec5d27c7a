#pragma once

#include <coxswain/collectives/reduction/narrow_codec.hpp>
#include <coxswain/collectives/reduction/rank_inputs.hpp>
#include <coxswain/collectives/reduction/reduction_arithmetic.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace cox::detail {

// Loops run over steps of a constant number of elements, because compilers vectorise such loops already at -O2.
inline constexpr std::size_t reduction_step = 64;
// The accumulators of a block stay in the first-level cache while the contributions are read.
inline constexpr std::size_t reduction_block = 1024;
static_assert(reduction_block % reduction_step == 0);

/// The accumulators of up to 1024 contiguous elements. A loop processes as many ranks at a time as it has registers
/// for.
template <typename Element, ReduceOperation operation>
class ReductionBlock {
 public:
  using Stored = typename Element::Stored;
  using Value = Accumulator<Element, operation>;
  template <std::size_t sources>
  using From = std::array<const std::byte*, sources>;

  [[gnu::always_inline]] explicit ReductionBlock(std::size_t count) noexcept : count_(count) {}

  /// Takes the first contributions. The accumulators have no values before.
  template <std::size_t sources>
  [[gnu::always_inline]] void begin(const From<sources>& from) noexcept {
    for_each_step<true>(from);
  }
  template <std::size_t sources>
  [[gnu::always_inline]] void add(const From<sources>& from) noexcept {
    for_each_step<false>(from);
  }
  [[gnu::always_inline]] void finish(std::byte* to, std::size_t ranks) const noexcept {
    std::array<Stored, reduction_step> elements;
    for (std::size_t at = 0; at < count_; at += reduction_step) {
      for (std::size_t i = 0; i < reduction_step; ++i)
        elements[i] = finished<Element, operation>(values_[at + i], static_cast<Value>(ranks));
      // A copy of constant length is done in registers.
      if (count_ - at >= reduction_step)
        std::memcpy(to + at * sizeof(Stored), elements.data(), reduction_step * sizeof(Stored));
      else
        std::memcpy(to + at * sizeof(Stored), elements.data(), (count_ - at) * sizeof(Stored));
    }
  }

 private:
  [[gnu::always_inline]] static Value loaded(const std::byte* elements, std::size_t i) noexcept {
    Stored element;
    std::memcpy(&element, elements + i * sizeof(Stored), sizeof(Stored));
    return static_cast<Value>(Element::decode(element));
  }

  template <bool first, std::size_t sources>
  [[gnu::always_inline]] static void step(Value* values, const From<sources>& from) noexcept {
    for (std::size_t i = 0; i < reduction_step; ++i) {
      Value value = first ? loaded(from[0], i) : combined<operation>(values[i], loaded(from[0], i));
      if constexpr (sources == 4) {
        value = combined<operation>(value, loaded(from[1], i));
        value = combined<operation>(value, loaded(from[2], i));
        value = combined<operation>(value, loaded(from[3], i));
      }
      values[i] = value;
    }
  }

  // Reads full steps in place. An incomplete last step is copied and padded with zeros.
  template <bool first, std::size_t sources>
  [[gnu::always_inline]] void for_each_step(From<sources> from) noexcept {
    std::array<std::array<std::byte, reduction_step * sizeof(Stored)>, sources> filled;
    for (std::size_t at = 0; at < count_; at += reduction_step) {
      if (count_ - at < reduction_step)
        for (std::size_t i = 0; i < sources; ++i) {
          filled[i] = {};
          std::memcpy(filled[i].data(), from[i], (count_ - at) * sizeof(Stored));
          from[i] = filled[i].data();
        }
      step<first, sources>(values_.data() + at, from);
      for (const std::byte*& source : from) source += reduction_step * sizeof(Stored);
    }
  }

  std::size_t count_;
  alignas(64) std::array<Value, reduction_block> values_;
};

/// Reduces a block of all contributions. `decoded(rank, place)` returns the address of the rank's elements. It may
/// decode them into buffer `place`, 0 to 3, which is reused for later ranks.
template <typename Element, ReduceOperation operation, typename Decoded>
[[gnu::always_inline]] inline void reduce_block(std::size_t ranks, std::size_t count, std::byte* to,
                                                const Decoded& decoded) noexcept {
  ReductionBlock<Element, operation> block(count);
  std::size_t rank = 0;
  if (ranks < 4) block.begin(std::array{decoded(rank++, 0)});
  for (; ranks - rank >= 4; rank += 4) {
    const std::array four{decoded(rank, 0), decoded(rank + 1, 1), decoded(rank + 2, 2), decoded(rank + 3, 3)};
    if (rank == 0)
      block.begin(four);
    else
      block.add(four);
  }
  for (; rank < ranks; ++rank) block.add(std::array{decoded(rank, 0)});
  block.finish(to, ranks);
}

/// Reduces elements that are computed in their own type. All contributions to a block are read before it is written,
/// which makes in-place reduction correct.
template <typename Element, ReduceOperation operation>
[[gnu::always_inline]] inline void reduce_plain(const RankInputs& contributions, ElementRange range,
                                                std::byte* to) noexcept {
  constexpr std::size_t size = sizeof(typename Element::Stored);
  for (std::size_t at = 0; at < range.count; at += reduction_block) {
    const std::size_t offset = (range.first + at) * size;
    const auto as_it_is = [&](std::size_t rank, std::size_t)
                              __attribute__((always_inline)) { return contributions[rank] + offset; };
    reduce_block<Element, operation>(contributions.size(), std::min(reduction_block, range.count - at), to + at * size,
                                     as_it_is);
  }
}

/// Reduces elements of `size` bytes that are computed in float.
template <ReduceOperation operation>
[[gnu::always_inline]] inline void reduce_narrow(const NarrowCodec& codec, std::size_t size,
                                                 const RankInputs& contributions, ElementRange range,
                                                 std::byte* to) noexcept {
  constexpr std::size_t most = 256;
  static_assert(most <= reduction_block && most % NarrowCodec::step == 0);
  alignas(64) std::array<std::array<float, most>, 4> places;
  for (std::size_t at = 0; at < range.count; at += most) {
    const std::size_t count = std::min(most, range.count - at);
    const auto decoded = [&](std::size_t rank, std::size_t place) __attribute__((always_inline)) {
      codec.decode(contributions[rank] + (range.first + at) * size, count, places[place].data());
      return reinterpret_cast<const std::byte*>(places[place].data());
    };
    reduce_block<Plain<ElementType::F32, float>, operation>(contributions.size(), count,
                                                            reinterpret_cast<std::byte*>(places[0].data()), decoded);
    codec.encode(places[0].data(), count, to + at * size);
  }
}

}  // namespace cox::detail
