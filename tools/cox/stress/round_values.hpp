#pragma once

#include <coxswain/tools/cox/stress/round.hpp>

#include <cstddef>
#include <vector>

namespace cox::stress {

using ByteVector = std::vector<std::byte>;

/// Bytes of a rank's buffers in a part of a round; 0 where it needs none.
[[nodiscard]] std::size_t source_bytes(const RoundPart& part, std::size_t ranks, std::size_t rank);
[[nodiscard]] std::size_t result_bytes(const RoundPart& part, std::size_t ranks, std::size_t rank);

/// What a rank gives. Where floats are reduced it is small whole numbers, so chosen that the result is one, too: it is
/// exact then, in whatever type and order it is computed.
[[nodiscard]] ByteVector source_of(const RoundPart& part, std::size_t ranks, std::size_t rank);

/// What the ranks must get: recomputed on the CPU, with nothing of the library.
class RoundValues {
 public:
  RoundValues(const RoundPart& part, std::size_t ranks);

  [[nodiscard]] ByteVector result_of(std::size_t rank) const;

 private:
  RoundPart part_;
  std::vector<ByteVector> sources_;  // by rank; where it is reduced: the reduction alone
};

}  // namespace cox::stress
