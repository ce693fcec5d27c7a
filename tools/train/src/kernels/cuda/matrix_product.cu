// A plain product of matrices, for devices without cuBLASLt and for shapes that it refuses. Correct, not fast: a block
// of 256 threads computes 64 x 64 elements of the result, each thread 4 x 4.

constexpr int side = 64;   // of the result's tile
constexpr int depth = 16;  // of the operands' tiles

struct Product {
  Count m;
  Count n;
  Count k;
  Flag a_transposed;
  Flag b_transposed;
  Flag accumulate;
  Count batch;
};

template <class Out>
__device__ inline void multiply(Out* out, const Element* a, const Element* b, const Product& shape,
                                float (&a_tile)[depth][side + 1], float (&b_tile)[depth][side + 1]) {
  const Size m = shape.m;
  const Size n = shape.n;
  const Size k = shape.k;
  const Size row_tiles = (m + side - 1) / side;
  const Size column_tiles = (n + side - 1) / side;
  const Size first_column = blockIdx.x % column_tiles * side;
  const Size first_row = blockIdx.x / column_tiles % row_tiles * side;
  const Size batch = blockIdx.x / column_tiles / row_tiles;
  a += batch * m * k;
  b += batch * k * n;
  out += batch * m * n;
  const unsigned row = threadIdx.x / 16 * 4;
  const unsigned column = threadIdx.x % 16 * 4;
  float sum[4][4] = {};
  for (Size begin = 0; begin < k; begin += depth) {
    __syncthreads();
    // Consecutive threads read consecutive addresses, whichever way the operand lies.
    for (unsigned i = threadIdx.x; i < side * depth; i += blockDim.x) {
      const unsigned a_row = shape.a_transposed ? i % side : i / depth;
      const unsigned a_depth = shape.a_transposed ? i / side : i % depth;
      const Size r = first_row + a_row;
      const Size d = begin + a_depth;
      a_tile[a_depth][a_row] = r < m && d < k ? to_float(shape.a_transposed ? a[d * m + r] : a[r * k + d]) : 0.0F;
      const unsigned b_column = shape.b_transposed ? i / depth : i % side;
      const unsigned b_depth = shape.b_transposed ? i % depth : i / side;
      const Size c = first_column + b_column;
      const Size e = begin + b_depth;
      b_tile[b_depth][b_column] = c < n && e < k ? to_float(shape.b_transposed ? b[c * k + e] : b[e * n + c]) : 0.0F;
    }
    __syncthreads();
    for (int d = 0; d < depth; ++d)
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) sum[i][j] += a_tile[d][row + i] * b_tile[d][column + j];
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const Size r = first_row + row + i;
      const Size c = first_column + column + j;
      if (r >= m || c >= n) continue;
      Out* const to = out + r * n + c;
      round_to(to, shape.accumulate ? to_float(*to) + sum[i][j] : sum[i][j]);
    }
}

// out [batch, m, n] = a b, or out += a b.
KERNEL void matrix_product(Element* out, const Element* a, const Element* b, Product shape) {
  __shared__ float a_tile[depth][side + 1];
  __shared__ float b_tile[depth][side + 1];
  multiply(out, a, b, shape, a_tile, b_tile);
}

// The same with a result in floats, for the gradients of parameters.
KERNEL void matrix_product_float(float* out, const Element* a, const Element* b, Product shape) {
  __shared__ float a_tile[depth][side + 1];
  __shared__ float b_tile[depth][side + 1];
  multiply(out, a, b, shape, a_tile, b_tile);
}
