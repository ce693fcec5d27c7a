#include <kernels/kernel_list.hpp>
#include <kernels/vector_math.hpp>

#include <algorithm>
#include <cmath>

namespace train::host {

// out [i] = sum of the squares of elements [i * square_sum_elements, (i + 1) * square_sum_elements) of x. Buffers: out,
// x [count]. Scalars: count.
void square_sum(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t count = args.size(0);
  const std::size_t sums = (count + square_sum_elements - 1) / square_sum_elements;
  const float* const x = args.in(1, count);
  float* const out = args.out(0, sums);
  for (std::size_t i = 0; i < sums; ++i) {
    const std::size_t begin = i * square_sum_elements;
    out[i] = dot(x + begin, x + begin, std::min(square_sum_elements, count - begin));
  }
}

// out [1] = sum of x. Buffers: out, x [count]. Scalars: count.
void total(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t count = args.size(0);
  const float* const x = args.in(1, count);
  *args.out(0, 1) = sum(x, count);
}

// out [1] = the factor by which gradients are multiplied so that their norm is at most `limit`. Buffers: out, squares
// [1], the square of the norm. Scalars: limit.
void clip_factor(const cox::KernelContext& context) {
  const Arguments args(context);
  const float norm = std::sqrt(*args.in(1, 1));
  const float limit = args.number(0);
  *args.out(0, 1) = norm > limit ? limit / norm : 1.0F;
}

// One step of AdamW (Loshchilov and Hutter, 2019). Buffers: parameters, first moments, second moments, gradients, the
// factor for gradients [1], schedule [3]: learning rate, 1 / (1 - beta1^t), 1 / (1 - beta2^t). What changes from step
// to step is in buffers and not in scalars, so that a captured step can be replayed. Scalars: count, beta1, beta2,
// epsilon, weight decay.
void adam_w(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t count = args.size(0);
  const float beta1 = args.number(1);
  const float beta2 = args.number(2);
  const float epsilon = args.number(3);
  float* const p = args.out(0, count);
  float* const m = args.out(1, count);
  float* const v = args.out(2, count);
  const float* const g = args.in(3, count);
  const float factor = *args.in(4, 1);
  const float* const schedule = args.in(5, 3);
  const float rate = schedule[0];
  const float correct_m = schedule[1];
  const float correct_v = schedule[2];
  const float keep = 1.0F - rate * args.number(4);
  for (std::size_t i = 0; i < count; ++i) {
    const float gradient = g[i] * factor;
    m[i] = beta1 * m[i] + (1.0F - beta1) * gradient;
    v[i] = beta2 * v[i] + (1.0F - beta2) * gradient * gradient;
    p[i] = p[i] * keep - rate * (m[i] * correct_m) / (std::sqrt(v[i] * correct_v) + epsilon);
  }
}

}  // namespace train::host
