#pragma once

#include <cstddef>

namespace train {

/// A matrix of floats in row-major order, or the transpose of one. `stride`: elements from one row to the next.
struct MatrixView {
  const float* data;
  std::size_t stride;
  bool transposed = false;
};

/// c = a b, or c += a b; a has m x k elements, b k x n, c m x n, after transposition. The order of the additions
/// depends only on the shape, so equal inputs give equal bits. Uses one thread.
void matrix_product(std::size_t m, std::size_t n, std::size_t k, MatrixView a, MatrixView b, float* c,
                    std::size_t c_stride, bool accumulate);

}  // namespace train
