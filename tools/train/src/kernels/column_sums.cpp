#include <kernels/kernel_list.hpp>

#include <algorithm>

// Sums over the rows of a matrix, in two stages: the sums of chunks of the rows, then the sum of these. A device that
// has many cores computes the chunks at the same time; the order of the additions is fixed.

namespace train::host {
namespace {

// The rows of chunk number `chunk` begin here.
std::size_t begin_of(std::size_t chunk, std::size_t chunks, std::size_t rows) { return rows * chunk / chunks; }

}  // namespace

// partials [chunks, width]: the sum of each chunk of the rows of d_out. Buffers: partials, d_out [rows, width].
// Scalars: rows, width, chunks.
void bias_backward_chunks(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t rows = args.size(0);
  const std::size_t width = args.size(1);
  const std::size_t chunks = args.size(2);
  float* const partials = args.out(0, chunks * width);
  const float* const d_out = args.in(1, rows * width);
  std::fill_n(partials, chunks * width, 0.0F);
  for (std::size_t chunk = 0; chunk < chunks; ++chunk)
    for (std::size_t row = begin_of(chunk, chunks, rows); row < begin_of(chunk + 1, chunks, rows); ++row)
      for (std::size_t i = 0; i < width; ++i) partials[chunk * width + i] += d_out[row * width + i];
}

// partials [chunks, 2, width]: of each chunk of the rows, the gradients of a norm's gain and bias. Buffers: partials,
// d_out [rows, width], x, mean [rows], rstd [rows]. Scalars: rows, width, chunks.
void layer_norm_backward_chunks(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t rows = args.size(0);
  const std::size_t width = args.size(1);
  const std::size_t chunks = args.size(2);
  float* const partials = args.out(0, chunks * 2 * width);
  const float* const d_out = args.in(1, rows * width);
  const float* const x = args.in(2, rows * width);
  const float* const means = args.in(3, rows);
  const float* const rstds = args.in(4, rows);
  std::fill_n(partials, chunks * 2 * width, 0.0F);
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    float* const d_gain = partials + chunk * 2 * width;
    float* const d_bias = d_gain + width;
    for (std::size_t row = begin_of(chunk, chunks, rows); row < begin_of(chunk + 1, chunks, rows); ++row) {
      const float* const d = d_out + row * width;
      const float* const from = x + row * width;
      for (std::size_t i = 0; i < width; ++i) {
        d_gain[i] += d[i] * ((from[i] - means[row]) * rstds[row]);
        d_bias[i] += d[i];
      }
    }
  }
}

// out [width] = sum over the chunks of partials[chunk * stride + first + column], or out += that. Buffers: out,
// partials. Scalars: chunks, stride, first, width, whether to add.
void sum_chunks(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t chunks = args.size(0);
  const std::size_t stride = args.size(1);
  const std::size_t first = args.size(2);
  const std::size_t width = args.size(3);
  float* const out = args.out(0, width);
  const float* const partials = args.in(1, chunks * stride);
  if (!args.flag(4)) std::fill_n(out, width, 0.0F);
  for (std::size_t chunk = 0; chunk < chunks; ++chunk)
    for (std::size_t i = 0; i < width; ++i) out[i] += partials[chunk * stride + first + i];
}

}  // namespace train::host
