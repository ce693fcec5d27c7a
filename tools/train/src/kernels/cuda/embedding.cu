// The embedding of tokens and positions.

struct Embedding {
  Count rows;
  Count context;
  Count width;
};

// out [rows, width] = token_table[tokens] + position_table. A thread for `lanes` elements; blocks of 256 threads.
KERNEL void embed_forward(Element* out, const int* tokens, const Element* token_table, const Element* position_table,
                          Embedding shape) {
  const Size width = shape.width;
  const auto compute = [&](Size i, auto vector) {
    const unsigned row = static_cast<unsigned>(i) / shape.width;  // 32 bits: there are fewer than 2^32 elements
    const unsigned column = static_cast<unsigned>(i) % shape.width;
    float token[width_of(vector)];
    float position[width_of(vector)];
    vector.load(token_table + static_cast<Size>(tokens[row]) * width + column, token);
    vector.load(position_table + (row % shape.context) * width + column, position);
    for (int j = 0; j < width_of(vector); ++j) token[j] += position[j];
    vector.store(out + i, token);
  };
  if (width % lanes == 0) {
    for_elements(shape.rows * width, compute);
    return;
  }
  const Size count = shape.rows * width;
  const Size first = global_thread() * lanes;
  for (Size i = first; i < first + lanes && i < count; ++i) compute(i, Vector<1>());
}

constexpr int tile = 64;  // columns of a block

// Adds the rows of d_out of one token to the row of the table, for `tile` columns. The block has 4 * n rows of tile / n
// threads; each thread adds every (4 * n)-th row of the token, and the sums are added in their order.
template <int n>
__device__ inline void add_rows_of_token(float* table, const Element* d_out, const int* order, Size begin, Size end,
                                         Size first_column, Size width, float (&sums)[4 * lanes][tile]) {
  constexpr int row_step = 4 * n;
  const int row_lane = static_cast<int>(threadIdx.x) / (tile / n);
  const int local = static_cast<int>(threadIdx.x) % (tile / n) * n;
  float sum[n] = {};
  if (first_column + local < width)
    for (Size at = begin + row_lane; at < end; at += row_step) {
      float x[n];
      Vector<n>::load(d_out + static_cast<Size>(order[at]) * width + first_column + local, x);
      for (int j = 0; j < n; ++j) sum[j] += x[j];
    }
  for (int j = 0; j < n; ++j) sums[row_lane][local + j] = sum[j];
  __syncthreads();
  if (threadIdx.x < tile && first_column + threadIdx.x < width) {
    float total = 0;
    for (int i = 0; i < row_step; ++i) total += sums[i][threadIdx.x];
    table[first_column + threadIdx.x] += total;
  }
}

struct TokenRuns {
  Count rows;
  Count width;
  Count runs;
};

// d_table[token] += the rows of d_out whose token that is. `order` [rows]: the rows, sorted by token; `begins`
// [runs + 1]: where the rows of each different token begin; unused runs begin at `rows`. A block of 256 threads for
// each run and `tile` columns.
KERNEL void embed_backward_tokens(float* d_table, const Element* d_out, const int* tokens, const int* order,
                                  const int* begins, TokenRuns shape) {
  __shared__ float sums[4 * lanes][tile];
  const Size width = shape.width;
  const Size tiles = (width + tile - 1) / tile;
  const Size run = blockIdx.x / tiles;
  const Size first_column = blockIdx.x % tiles * tile;
  const Size begin = begins[run];
  const Size end = begins[run + 1];
  if (begin == end) return;
  float* const table = d_table + static_cast<Size>(tokens[order[begin]]) * width;
  if (width % lanes == 0) {
    add_rows_of_token<lanes>(table, d_out, order, begin, end, first_column, width, sums);
  } else {
    add_rows_of_token<1>(table, d_out, order, begin, end, first_column, width, sums);
  }
}

struct Positions {
  Count rows;
  Count context;
  Count width;
  Flag accumulate;
};

// d_table [context, width] = sum of d_out over the samples, in their order. A thread for `lanes` elements of the table;
// blocks of 256 threads.
KERNEL void embed_backward_positions(float* d_table, const Element* d_out, Positions shape) {
  const Size count = static_cast<Size>(shape.context) * shape.width;
  const Size samples = shape.rows / shape.context;
  const auto compute = [&](Size i, auto vector) {
    float sum[width_of(vector)] = {};
    for (Size sample = 0; sample < samples; ++sample) {
      float x[width_of(vector)];
      vector.load(d_out + sample * count + i, x);
      for (int j = 0; j < width_of(vector); ++j) sum[j] += x[j];
    }
    for (int j = 0; j < width_of(vector); ++j) d_table[i + j] = shape.accumulate ? d_table[i + j] + sum[j] : sum[j];
  };
  if (count % lanes == 0) {
    for_elements(count, compute);
    return;
  }
  const Size first = global_thread() * lanes;
  for (Size i = first; i < first + lanes && i < count; ++i) compute(i, Vector<1>());
}
