// Causal attention, around products of matrices of each head.

struct Heads {
  Count samples;
  Count length;
  Count parts;
  Count heads;
  Count depth;
};

// Element `at` of [samples, length, parts, heads, depth] is element index_by_head(at) of [parts, samples, heads,
// length, depth]. Divisions of 32 bits: there are fewer than 2^32 elements.
__device__ inline Size index_by_head(unsigned at, const Heads& shape) {
  const unsigned depth = at % shape.depth;
  unsigned rest = at / shape.depth;
  const unsigned head = rest % shape.heads;
  rest /= shape.heads;
  const unsigned part = rest % shape.parts;
  rest /= shape.parts;
  const unsigned position = rest % shape.length;
  const unsigned sample = rest / shape.length;
  return (((static_cast<Size>(part) * shape.samples + sample) * shape.heads + head) * shape.length + position) *
             shape.depth +
         depth;
}
__device__ inline Size count_of(const Heads& shape) {
  return static_cast<Size>(shape.samples) * shape.length * shape.parts * shape.heads * shape.depth;
}

// Copies 16 bytes at once if a head has a multiple of that. f(i, by head, Vector).
template <class F>
__device__ inline void for_heads(const Heads& shape, const F& f) {
  const Size count = count_of(shape);
  if (shape.depth % lanes == 0) {
    for_elements(count, [&](Size i, auto vector) { f(i, index_by_head(static_cast<unsigned>(i), shape), vector); });
    return;
  }
  const Size first = global_thread() * lanes;
  for (Size i = first; i < first + lanes && i < count; ++i)
    f(i, index_by_head(static_cast<unsigned>(i), shape), Vector<1>());
}

// out [parts, samples, heads, length, depth] from x [samples, length, parts, heads, depth]. Blocks of 256 threads, each
// with `lanes` elements; so in merge_heads.
KERNEL void split_heads(Element* out, const Element* x, Heads shape) {
  for_heads(shape, [&](Size i, Size by_head, auto vector) {
    float v[width_of(vector)];
    vector.load(x + i, v);
    vector.store(out + by_head, v);
  });
}

// The inverse.
KERNEL void merge_heads(Element* out, const Element* x, Heads shape) {
  for_heads(shape, [&](Size i, Size by_head, auto vector) {
    float v[width_of(vector)];
    vector.load(x + by_head, v);
    vector.store(out + i, v);
  });
}

struct Scores {
  Count rows;
  Count length;
  Number scale;
};

constexpr int rows_of_block = 8;

template <int n>
__device__ inline void softmax_row(Element* row, int visible, int length, float scale) {
  const int first = static_cast<int>(threadIdx.x) % warp_size * n;
  float highest = -3.0e38F;
  float total = 0;
  for (int i = first; i < visible; i += warp_size * n) {
    float x[n];
    Vector<n>::load(row + i, x);
    float above = highest;
    for (int j = 0; j < n; ++j)
      if (i + j < visible && x[j] > above) above = x[j];
    total *= __expf((highest - above) * scale);
    for (int j = 0; j < n; ++j)
      if (i + j < visible) total += __expf((x[j] - above) * scale);
    highest = above;
  }
  const float above = warp_max(highest);
  const float factor = 1.0F / warp_sum(total * __expf((highest - above) * scale));
  for (int i = first; i < length; i += warp_size * n) {
    float x[n] = {};
    if (i < visible) {
      Vector<n>::load(row + i, x);
      for (int j = 0; j < n; ++j) x[j] = i + j < visible ? __expf((x[j] - above) * scale) * factor : 0.0F;
    }
    Vector<n>::store(row + i, x);
  }
}

// Softmax of scale * the first i + 1 elements of row i of each matrix [length, length], in place; the others become
// zero. A warp for each row, 8 rows in a block.
KERNEL void causal_softmax(Element* scores, Scores shape) {
  const Size row = static_cast<Size>(blockIdx.x) * rows_of_block + threadIdx.x / warp_size;
  if (row >= shape.rows) return;
  const int length = static_cast<int>(shape.length);
  const int visible = static_cast<int>(row % shape.length) + 1;
  if (length % lanes == 0) {
    softmax_row<lanes>(scores + row * length, visible, length, shape.scale);
  } else {
    softmax_row<1>(scores + row * length, visible, length, shape.scale);
  }
}

template <int n>
__device__ inline void softmax_gradient_row(Element* d_row, const Element* p_row, int visible, int length,
                                            float scale) {
  const int first = static_cast<int>(threadIdx.x) % warp_size * n;
  float sum = 0;
  for (int i = first; i < visible; i += warp_size * n) {
    float d[n];
    float p[n];
    Vector<n>::load(d_row + i, d);
    Vector<n>::load(p_row + i, p);
    for (int j = 0; j < n; ++j)
      if (i + j < visible) sum += d[j] * p[j];
  }
  const float mean = warp_sum(sum);
  for (int i = first; i < length; i += warp_size * n) {
    float d[n] = {};
    if (i < visible) {
      float p[n];
      Vector<n>::load(d_row + i, d);
      Vector<n>::load(p_row + i, p);
      for (int j = 0; j < n; ++j) d[j] = i + j < visible ? p[j] * (d[j] - mean) * scale : 0.0F;
    }
    Vector<n>::store(d_row + i, d);
  }
}

// The gradient of the scores from that of the probabilities, in place. A warp for each row, 8 rows in a block.
KERNEL void causal_softmax_backward(Element* d_scores, const Element* probabilities, Scores shape) {
  const Size row = static_cast<Size>(blockIdx.x) * rows_of_block + threadIdx.x / warp_size;
  if (row >= shape.rows) return;
  const int length = static_cast<int>(shape.length);
  const int visible = static_cast<int>(row % shape.length) + 1;
  const Size at = row * length;
  if (length % lanes == 0) {
    softmax_gradient_row<lanes>(d_scores + at, probabilities + at, visible, length, shape.scale);
  } else {
    softmax_gradient_row<1>(d_scores + at, probabilities + at, visible, length, shape.scale);
  }
}
