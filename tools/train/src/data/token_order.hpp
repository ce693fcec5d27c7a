#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace train {

/// The rows of a batch sorted by their tokens, so that the gradient of each token's embedding is a sum in a fixed
/// order.
struct TokenOrder {
  std::vector<std::int32_t> order;   ///< the rows; those of one token are in ascending order
  std::vector<std::int32_t> begins;  ///< where the rows of each different token begin in `order`, then the end

  /// `runs`: size of `begins` less one, at least the number of different tokens; unused runs are empty.
  TokenOrder(std::span<const std::int32_t> tokens, std::size_t runs);
};

}  // namespace train
