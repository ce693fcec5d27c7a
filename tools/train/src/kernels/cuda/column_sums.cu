// Sums over the rows of a matrix, for the gradients of biases and norms, in two stages: each block adds a chunk of the
// rows, then the sums of the chunks are added in their order.

constexpr int tile = 64;  // columns of a block

struct Chunks {
  Count rows;
  Count width;
  Count chunks;
};

// `terms`(row, first column, sums) adds the terms of a row to sums[which][column]. `which` counts the sums of a column.
// Block of 256 threads: 4 * n rows of tile / n threads, each with n columns.
template <int n, int kinds, class Terms>
__device__ inline void add_chunk(float* partials, const Chunks& shape, float (&sums)[4 * lanes][tile],
                                 const Terms& terms) {
  constexpr int row_step = 4 * n;
  const Size width = shape.width;
  const Size tiles = (width + tile - 1) / tile;
  const Size chunk = blockIdx.x / tiles;
  const Size first_column = blockIdx.x % tiles * tile;
  const Size begin = shape.rows * chunk / shape.chunks;
  const Size end = shape.rows * (chunk + 1) / shape.chunks;
  const int row_lane = static_cast<int>(threadIdx.x) / (tile / n);
  const int local = static_cast<int>(threadIdx.x) % (tile / n) * n;
  float sum[kinds][n] = {};
  if (first_column + local < width)
    for (Size row = begin + row_lane; row < end; row += row_step) terms(row, row * width + first_column + local, sum);
  for (int kind = 0; kind < kinds; ++kind) {
    __syncthreads();
    for (int j = 0; j < n; ++j) sums[row_lane][local + j] = sum[kind][j];
    __syncthreads();
    if (threadIdx.x < tile && first_column + threadIdx.x < width) {
      float total = 0;
      for (int i = 0; i < row_step; ++i) total += sums[i][threadIdx.x];
      partials[(chunk * kinds + kind) * width + first_column + threadIdx.x] = total;
    }
  }
}

template <int n>
__device__ inline void bias_chunk(float* partials, const Element* d_out, const Chunks& shape,
                                  float (&sums)[4 * lanes][tile]) {
  add_chunk<n, 1>(partials, shape, sums, [&](Size, Size at, float(&sum)[1][n]) {
    float d[n];
    Vector<n>::load(d_out + at, d);
    for (int j = 0; j < n; ++j) sum[0][j] += d[j];
  });
}

// partials [chunks, width]: the sum of each chunk of the rows of d_out [rows, width].
KERNEL void bias_backward_chunks(float* partials, const Element* d_out, Chunks shape) {
  __shared__ float sums[4 * lanes][tile];
  if (shape.width % lanes == 0) {
    bias_chunk<lanes>(partials, d_out, shape, sums);
  } else {
    bias_chunk<1>(partials, d_out, shape, sums);
  }
}

template <int n>
__device__ inline void norm_chunk(float* partials, const Element* d_out, const Element* x, const float* means,
                                  const float* rstds, const Chunks& shape, float (&sums)[4 * lanes][tile]) {
  add_chunk<n, 2>(partials, shape, sums, [&](Size row, Size at, float(&sum)[2][n]) {
    const float mean = means[row];
    const float rstd = rstds[row];
    float d[n];
    float v[n];
    Vector<n>::load(d_out + at, d);
    Vector<n>::load(x + at, v);
    for (int j = 0; j < n; ++j) {
      sum[0][j] += d[j] * ((v[j] - mean) * rstd);
      sum[1][j] += d[j];
    }
  });
}

// partials [chunks, 2, width]: of each chunk of the rows, the gradients of gain and bias.
KERNEL void layer_norm_backward_chunks(float* partials, const Element* d_out, const Element* x, const float* means,
                                       const float* rstds, Chunks shape) {
  __shared__ float sums[4 * lanes][tile];
  if (shape.width % lanes == 0) {
    norm_chunk<lanes>(partials, d_out, x, means, rstds, shape, sums);
  } else {
    norm_chunk<1>(partials, d_out, x, means, rstds, shape, sums);
  }
}

struct Partials {
  Count chunks;
  Count stride;
  Count first;
  Count width;
  Flag accumulate;
};

// out [width] = sum over the chunks of partials[chunk * stride + first + column], or out += that. Block of 256 threads:
// 32 columns, whose chunks are added by 8 threads each.
KERNEL void sum_chunks(float* out, const float* partials, Partials shape) {
  __shared__ float sums[8][32];
  const Size column = static_cast<Size>(blockIdx.x) * 32 + threadIdx.x % 32;
  const unsigned lane = threadIdx.x / 32;
  float sum = 0;
  if (column < shape.width)
    for (Size chunk = lane; chunk < shape.chunks; chunk += 8)
      sum += partials[chunk * shape.stride + shape.first + column];
  sums[lane][threadIdx.x % 32] = sum;
  __syncthreads();
  if (lane != 0 || column >= shape.width) return;
  float total = 0;
  for (int i = 0; i < 8; ++i) total += sums[i][threadIdx.x];
  out[column] = shape.accumulate ? out[column] + total : total;
}
