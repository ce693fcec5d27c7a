// The norm of the gradients, and AdamW. All values are floats.

struct Elements {
  Count count;
};

constexpr int elements_of_block = 8192;

__device__ inline bool is_aligned(const void* pointer) { return reinterpret_cast<Size>(pointer) % 16 == 0; }

// out [block] = sum of the squares of `elements_of_block` elements of x. Blocks of 256 threads.
KERNEL void square_sum(float* out, const float* x, Elements elements) {
  __shared__ float shared[warp_size];
  const Size begin = static_cast<Size>(blockIdx.x) * elements_of_block;
  const Size end = begin + elements_of_block < elements.count ? begin + elements_of_block : elements.count;
  float sum = 0;
  if (is_aligned(x)) {
    const Size whole = begin + (end - begin) / 4 * 4;
    for (Size i = begin + threadIdx.x * 4; i < whole; i += blockDim.x * 4) {
      float v[4];
      Vector<4>::load(x + i, v);
      for (const float value : v) sum += value * value;
    }
    if (whole + threadIdx.x < end) sum += x[whole + threadIdx.x] * x[whole + threadIdx.x];
  } else {
    for (Size i = begin + threadIdx.x; i < end; i += blockDim.x) sum += x[i] * x[i];
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// out [1] = sum of x. One block of 1,024 threads.
KERNEL void total(float* out, const float* x, Elements elements) {
  __shared__ float shared[warp_size];
  float sum = 0;
  for (Size i = threadIdx.x; i < elements.count; i += blockDim.x) sum += x[i];
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) *out = sum;
}

struct Clip {
  Number limit;
};

// out [1] = the factor by which gradients are multiplied so that their norm is at most `limit`. `squares` [1]: the
// square of the norm. One thread.
KERNEL void clip_factor(float* out, const float* squares, Clip clip) {
  const float norm = sqrtf(*squares);
  *out = norm > clip.limit ? clip.limit / norm : 1.0F;
}

struct AdamW {
  Count count;
  Number beta1;
  Number beta2;
  Number epsilon;
  Number decay;
};

template <int n, class Rounded>
__device__ inline void update(float* p, float* m, float* v, Rounded* rounded, const float* g, float factor,
                              const float* schedule, const AdamW& options, Size at) {
  const float rate = schedule[0];
  const float keep = 1.0F - rate * options.decay;
  float parameter[n];
  float first[n];
  float second[n];
  float gradient[n];
  Vector<n>::load(p + at, parameter);
  Vector<n>::load(m + at, first);
  Vector<n>::load(v + at, second);
  Vector<n>::load(g + at, gradient);
  for (int j = 0; j < n; ++j) {
    const float clipped = gradient[j] * factor;
    first[j] = options.beta1 * first[j] + (1.0F - options.beta1) * clipped;
    second[j] = options.beta2 * second[j] + (1.0F - options.beta2) * clipped * clipped;
    parameter[j] =
        parameter[j] * keep - rate * (first[j] * schedule[1]) / (sqrtf(second[j] * schedule[2]) + options.epsilon);
  }
  Vector<n>::store(p + at, parameter);
  Vector<n>::store(m + at, first);
  Vector<n>::store(v + at, second);
  if (rounded != nullptr) Vector<n>::store(rounded + at, parameter);
}

// A thread updates 4 elements. A shard of a parameter may begin anywhere.
template <class Rounded>
__device__ inline void update_all(float* p, float* m, float* v, Rounded* rounded, const float* g, const float* factor,
                                  const float* schedule, const AdamW& options) {
  const Size first = global_thread() * 4;
  const bool aligned = is_aligned(p) && is_aligned(m) && is_aligned(v) && is_aligned(g) &&
                       reinterpret_cast<Size>(rounded) % (4 * sizeof(Rounded)) == 0;
  if (aligned && first + 4 <= options.count) {
    update<4>(p, m, v, rounded, g, *factor, schedule, options, first);
  } else {
    for (Size i = first; i < first + 4 && i < options.count; ++i)
      update<1>(p, m, v, rounded, g, *factor, schedule, options, i);
  }
}

// One step of AdamW. schedule [3]: learning rate, 1 / (1 - beta1^t), 1 / (1 - beta2^t). Blocks of 256 threads.
KERNEL void adam_w(float* p, float* m, float* v, const float* g, const float* factor, const float* schedule,
                   AdamW options) {
  update_all(p, m, v, static_cast<float*>(nullptr), g, factor, schedule, options);
}

// The same; also writes the parameters rounded to the type of activations.
KERNEL void adam_w_rounded(float* p, float* m, float* v, Element* rounded, const float* g, const float* factor,
                           const float* schedule, AdamW options) {
  update_all(p, m, v, rounded, g, factor, schedule, options);
}
