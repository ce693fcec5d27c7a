#include <data/token_order.hpp>

#include <algorithm>
#include <numeric>

namespace train {

TokenOrder::TokenOrder(std::span<const std::int32_t> tokens, std::size_t runs) : order(tokens.size()) {
  std::iota(order.begin(), order.end(), 0);
  const auto token = [&](std::int32_t row) { return tokens[static_cast<std::size_t>(row)]; };
  std::ranges::stable_sort(order, {}, token);
  for (std::size_t i = 0; i < order.size(); ++i)
    if (i == 0 || token(order[i]) != token(order[i - 1])) begins.push_back(static_cast<std::int32_t>(i));
  begins.resize(runs + 1, static_cast<std::int32_t>(order.size()));
}

}  // namespace train
