#include <kernels/kernel_list.hpp>
#include <kernels/vector_math.hpp>

#include <cmath>

namespace train::host {

// out = (x - mean) * rstd * gain + bias for each row. Buffers: out [rows, width], mean [rows], rstd [rows], x, gain
// [width], bias [width]. Scalars: rows, width.
void layer_norm_forward(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t rows = args.size(0);
  const std::size_t width = args.size(1);
  float* const out = args.out(0, rows * width);
  float* const means = args.out(1, rows);
  float* const rstds = args.out(2, rows);
  const float* const x = args.in(3, rows * width);
  const float* const gain = args.in(4, width);
  const float* const bias = args.in(5, width);
  const float scale = 1.0F / static_cast<float>(width);
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const from = x + row * width;
    float* const to = out + row * width;
    const float mean = sum(from, width) * scale;
    const float rstd = 1.0F / std::sqrt(squared_distance(from, mean, width) * scale + 1e-5F);
    for (std::size_t i = 0; i < width; ++i) to[i] = (from[i] - mean) * rstd * gain[i] + bias[i];
    means[row] = mean;
    rstds[row] = rstd;
  }
}

// The gradient of x. Buffers: d_x [rows, width], d_out, x, mean, rstd, gain. Scalars: rows, width, whether to add to
// d_x.
void layer_norm_backward_input(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t rows = args.size(0);
  const std::size_t width = args.size(1);
  const bool add = args.flag(2);
  float* const d_x = args.out(0, rows * width);
  const float* const d_out = args.in(1, rows * width);
  const float* const x = args.in(2, rows * width);
  const float* const means = args.in(3, rows);
  const float* const rstds = args.in(4, rows);
  const float* const gain = args.in(5, width);
  const float scale = 1.0F / static_cast<float>(width);
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const d = d_out + row * width;
    const float* const from = x + row * width;
    float* const to = d_x + row * width;
    const float mean = means[row];
    const float rstd = rstds[row];
    const float d_mean = dot(d, gain, width) * scale;
    const float d_spread =
        fixed_order_sum(
            width, [=](std::size_t i) { return load(d + i) * load(gain + i) * ((load(from + i) - mean) * rstd); },
            [=](std::size_t i) { return d[i] * gain[i] * ((from[i] - mean) * rstd); }) *
        scale;
    for (std::size_t i = 0; i < width; ++i) {
      const float value = (d[i] * gain[i] - d_mean - (from[i] - mean) * rstd * d_spread) * rstd;
      to[i] = add ? to[i] + value : value;
    }
  }
}

}  // namespace train::host
