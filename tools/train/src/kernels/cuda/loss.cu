// The cross entropy and its mean.

struct Loss {
  Count rows;
  Count vocabulary;
  Number scale;
};

// A running maximum and the sum of e^(x - maximum).
struct Softmax {
  float highest;
  float total;
};

template <int n>
__device__ inline void include(Softmax& state, const float (&x)[n]) {
  float highest = state.highest;
  for (int j = 0; j < n; ++j) highest = x[j] > highest ? x[j] : highest;
  state.total *= __expf(state.highest - highest);
  for (int j = 0; j < n; ++j) state.total += __expf(x[j] - highest);
  state.highest = highest;
}

template <int n>
__device__ inline void row_of_loss(float* loss, Element* row, int target, int count, float scale, float* shared) {
  const float logit_of_target = to_float(row[target]);
  Softmax state{-3.0e38F, 0.0F};
  for (int i = static_cast<int>(threadIdx.x) * n; i < count; i += static_cast<int>(blockDim.x) * n) {
    float x[n];
    Vector<n>::load(row + i, x);
    include(state, x);
  }
  const float highest = block_max(state.highest, shared);
  const float total = block_sum(state.total * __expf(state.highest - highest), shared);
  if (threadIdx.x == 0) *loss = logf(total) + highest - logit_of_target;
  const float factor = scale / total;
  for (int i = static_cast<int>(threadIdx.x) * n; i < count; i += static_cast<int>(blockDim.x) * n) {
    float x[n];
    Vector<n>::load(row + i, x);
    for (int j = 0; j < n; ++j) x[j] = __expf(x[j] - highest) * factor - (i + j == target ? scale : 0.0F);
    Vector<n>::store(row + i, x);
  }
}

// The cross entropy of each row; replaces the logits [rows, vocabulary] by their gradient times `scale`. A block of
// 1,024 threads for each row.
KERNEL void cross_entropy(float* losses, Element* logits, const int* targets, Loss shape) {
  __shared__ float shared[warp_size];
  const Size row = blockIdx.x;
  const int vocabulary = static_cast<int>(shape.vocabulary);
  if (vocabulary % lanes == 0) {
    row_of_loss<lanes>(losses + row, logits + row * vocabulary, targets[row], vocabulary, shape.scale, shared);
  } else {
    row_of_loss<1>(losses + row, logits + row * vocabulary, targets[row], vocabulary, shape.scale, shared);
  }
}

struct Mean {
  Count count;
  Number scale;
  Flag accumulate;
};

// out [1] = scale * sum of x, or out += that. One block of 1,024 threads.
KERNEL void mean(float* out, const float* x, Mean shape) {
  __shared__ float shared[warp_size];
  float sum = 0;
  for (Size i = threadIdx.x; i < shape.count; i += blockDim.x) sum += x[i];
  sum = block_sum(sum, shared) * shape.scale;
  if (threadIdx.x == 0) *out = shape.accumulate ? *out + sum : sum;
}
