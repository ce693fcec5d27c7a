#pragma once

#include <coxswain/tools/cox/stress/round.hpp>

#include <cstddef>
#include <vector>

namespace cox::stress {

using ByteVector = std::vector<std::byte>;

/// Bytes of a rank's buffers in a part of a round; 0 if it needs none.
[[nodiscard]] std::size_t source_bytes(const RoundPart& part, std::size_t ranks, std::size_t rank);
[[nodiscard]] std::size_t result_bytes(const RoundPart& part, std::size_t ranks, std::size_t rank);

/// The content of a rank's source. For reductions of floats it consists of small whole numbers, chosen so that the
/// result is a small whole number, too. The result is then exact in any type and order of computation. In a rounded
/// part it consists of fractions instead.
[[nodiscard]] ByteVector source_of(const RoundPart& part, std::size_t ranks, std::size_t rank);

/// The results that the ranks must receive: recomputed on the CPU, without code of the library. Not of rounded parts.
class RoundValues {
 public:
  RoundValues(const RoundPart& part, std::size_t ranks);

  [[nodiscard]] ByteVector result_of(std::size_t rank) const;

 private:
  RoundPart part_;
  std::vector<ByteVector> sources_;  // by rank; for a reduction: only its result
};

}  // namespace cox::stress
