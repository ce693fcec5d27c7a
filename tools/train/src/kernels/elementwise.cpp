#include <kernels/kernel_list.hpp>
#include <kernels/vector_math.hpp>

#include <algorithm>

namespace train::host {
namespace {

constexpr float root_two_over_pi = 0.7978845608F;
constexpr float cubic = 0.044715F;

}  // namespace

// out [rows, width] += bias [width]. Buffers: out, bias. Scalars: rows, width.
void add_bias(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t rows = args.size(0);
  const std::size_t width = args.size(1);
  float* const out = args.out(0, rows * width);
  const float* const bias = args.in(1, width);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < width; ++i) out[row * width + i] += bias[i];
}

// GELU in the approximation by tanh, as in GPT-2. Buffers: out, x. Scalars: count.
void gelu_forward(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t count = args.size(0);
  float* const out = args.out(0, count);
  const float* const x = args.in(1, count);
  for (std::size_t i = 0; i < count; ++i) {
    const float t = fast_tanh(root_two_over_pi * (x[i] + cubic * x[i] * x[i] * x[i]));
    out[i] = 0.5F * x[i] * (1.0F + t);
  }
}

// Buffers: d_x, d_out, x. Scalars: count.
void gelu_backward(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t count = args.size(0);
  float* const d_x = args.out(0, count);
  const float* const d_out = args.in(1, count);
  const float* const x = args.in(2, count);
  for (std::size_t i = 0; i < count; ++i) {
    const float t = fast_tanh(root_two_over_pi * (x[i] + cubic * x[i] * x[i] * x[i]));
    const float slope = root_two_over_pi * (1.0F + 3.0F * cubic * x[i] * x[i]);
    d_x[i] = d_out[i] * (0.5F * (1.0F + t) + 0.5F * x[i] * (1.0F - t * t) * slope);
  }
}

// out = a + b. Buffers: out, a, b. Scalars: count.
void add(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t count = args.size(0);
  float* const out = args.out(0, count);
  const float* const a = args.in(1, count);
  const float* const b = args.in(2, count);
  for (std::size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

// Buffers: out. Scalars: count.
void zero(const cox::KernelContext& context) {
  const Arguments args(context);
  std::fill_n(args.out(0, args.size(0)), args.size(0), 0.0F);
}

// out = x. Buffers: out, x. Scalars: count.
void copy(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t count = args.size(0);
  std::copy_n(args.in(1, count), count, args.out(0, count));
}

}  // namespace train::host
