#include <kernels/kernel_list.hpp>
#include <kernels/matrix_product.hpp>
#include <kernels/vector_math.hpp>

#include <cmath>
#include <vector>

namespace train::host {
namespace {

// The shape of an attention: qkv is [batch, length, 3, heads, depth].
struct Shape {
  std::size_t batch;
  std::size_t length;
  std::size_t heads;
  std::size_t width;
  std::size_t depth = width / heads;
  std::size_t rows = batch * length;
  std::size_t qkv_stride = 3 * width;
  std::size_t square = length * length;
  float scale = 1.0F / std::sqrt(static_cast<float>(depth));

  explicit Shape(const Arguments& args)
      : batch(args.size(0)), length(args.size(1)), heads(args.size(2)), width(args.size(3)) {}
};

// Softmax of the first row + 1 elements of each row; the others become zero (causal mask).
void causal_softmax(float* scores, std::size_t length, float scale) {
  for (std::size_t row = 0; row < length; ++row) {
    float* const p = scores + row * length;
    float highest = p[0];
    for (std::size_t i = 1; i <= row; ++i) highest = p[i] > highest ? p[i] : highest;
    for (std::size_t i = 0; i <= row; ++i) p[i] = fast_exp((p[i] - highest) * scale);
    const float inverse = 1.0F / sum(p, row + 1);
    for (std::size_t i = 0; i <= row; ++i) p[i] *= inverse;
    for (std::size_t i = row + 1; i < length; ++i) p[i] = 0;
  }
}

}  // namespace

// Causal attention. Buffers: out [batch, length, width], probabilities [batch, heads, length, length], qkv [batch,
// length, 3 * width]. Scalars: batch, length, heads, width.
void attention_forward(const cox::KernelContext& context) {
  const Arguments args(context);
  const Shape s(args);
  float* const out = args.out(0, s.rows * s.width);
  float* const probabilities = args.out(1, s.batch * s.heads * s.square);
  const float* const qkv = args.in(2, s.rows * s.qkv_stride);
  for (std::size_t b = 0; b < s.batch; ++b)
    for (std::size_t h = 0; h < s.heads; ++h) {
      const float* const q = qkv + b * s.length * s.qkv_stride + h * s.depth;
      const float* const k = q + s.width;
      const float* const v = k + s.width;
      float* const p = probabilities + (b * s.heads + h) * s.square;
      train::matrix_product(s.length, s.length, s.depth, {q, s.qkv_stride}, {k, s.qkv_stride, true}, p, s.length,
                            false);
      causal_softmax(p, s.length, s.scale);
      train::matrix_product(s.length, s.depth, s.length, {p, s.length}, {v, s.qkv_stride},
                            out + b * s.length * s.width + h * s.depth, s.width, false);
    }
}

// The gradient of qkv. Buffers: d_qkv, d_scratch [length, length], d_out, probabilities, qkv. Scalars: as forward.
void attention_backward(const cox::KernelContext& context) {
  const Arguments args(context);
  const Shape s(args);
  float* const d_qkv = args.out(0, s.rows * s.qkv_stride);
  float* const d_scores = args.out(1, s.square);
  const float* const d_out = args.in(2, s.rows * s.width);
  const float* const probabilities = args.in(3, s.batch * s.heads * s.square);
  const float* const qkv = args.in(4, s.rows * s.qkv_stride);
  for (std::size_t b = 0; b < s.batch; ++b)
    for (std::size_t h = 0; h < s.heads; ++h) {
      const std::size_t first = b * s.length * s.qkv_stride + h * s.depth;
      const float* const q = qkv + first;
      const float* const k = q + s.width;
      const float* const v = k + s.width;
      float* const d_q = d_qkv + first;
      float* const d_k = d_q + s.width;
      float* const d_v = d_k + s.width;
      const float* const p = probabilities + (b * s.heads + h) * s.square;
      const float* const d = d_out + b * s.length * s.width + h * s.depth;
      train::matrix_product(s.length, s.depth, s.length, {p, s.length, true}, {d, s.width}, d_v, s.qkv_stride, false);
      train::matrix_product(s.length, s.length, s.depth, {d, s.width}, {v, s.qkv_stride, true}, d_scores, s.length,
                            false);
      for (std::size_t row = 0; row < s.length; ++row) {
        float* const d_row = d_scores + row * s.length;
        const float* const p_row = p + row * s.length;
        const float mean = dot(d_row, p_row, s.length);
        for (std::size_t i = 0; i < s.length; ++i) d_row[i] = p_row[i] * (d_row[i] - mean) * s.scale;
      }
      train::matrix_product(s.length, s.depth, s.length, {d_scores, s.length}, {k, s.qkv_stride}, d_q, s.qkv_stride,
                            false);
      train::matrix_product(s.length, s.depth, s.length, {d_scores, s.length, true}, {q, s.qkv_stride}, d_k,
                            s.qkv_stride, false);
    }
}

}  // namespace train::host
