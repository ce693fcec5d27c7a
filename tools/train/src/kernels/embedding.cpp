#include <kernels/kernel_list.hpp>

#include <algorithm>
#include <cstdint>

namespace train::host {

// out [rows, width] = token_table[tokens] + position_table. Buffers: out, tokens [rows], token_table [vocabulary,
// width], position_table [context, width]. Scalars: rows, context, width. rows is a multiple of context.
void embed_forward(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t rows = args.size(0);
  const std::size_t length = args.size(1);
  const std::size_t width = args.size(2);
  float* const out = args.out(0, rows * width);
  const std::int32_t* const tokens = args.tokens(1, rows);
  const float* const position_table = args.in(3, length * width);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto number = static_cast<std::size_t>(tokens[row]);
    const float* const token = args.in(2, (number + 1) * width) + number * width;
    const float* const position = position_table + (row % length) * width;
    for (std::size_t i = 0; i < width; ++i) out[row * width + i] = token[i] + position[i];
  }
}

// d_table[token] += the rows of d_out whose token that is, in their order: no atomic additions, whose order would
// change the bits. Buffers: d_table, d_out [rows, width], tokens [rows], order [rows]: the rows, sorted by token;
// begins [runs + 1]: where the rows of each different token begin; unused runs begin at `rows`. Scalars: rows, width,
// runs.
void embed_backward_tokens(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t rows = args.size(0);
  const std::size_t width = args.size(1);
  const std::size_t runs = args.size(2);
  const float* const d_out = args.in(1, rows * width);
  const std::int32_t* const tokens = args.tokens(2, rows);
  const std::int32_t* const order = args.tokens(3, rows);
  const std::int32_t* const begins = args.tokens(4, runs + 1);
  for (std::size_t run = 0; run < runs; ++run)
    for (std::int32_t at = begins[run]; at < begins[run + 1]; ++at) {
      const std::int32_t row = order[at];
      const auto token = static_cast<std::size_t>(tokens[row]);
      float* const to = args.out(0, (token + 1) * width) + token * width;
      const float* const d = d_out + static_cast<std::size_t>(row) * width;
      for (std::size_t i = 0; i < width; ++i) to[i] += d[i];
    }
}

// d_table [context, width] = sum of d_out over the samples, in their order. Buffers: d_table, d_out [rows, width].
// Scalars: rows, context, width, whether to add.
void embed_backward_positions(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t rows = args.size(0);
  const std::size_t count = args.size(1) * args.size(2);
  const std::size_t samples = rows / args.size(1);
  float* const d_table = args.out(0, count);
  const float* const d_out = args.in(1, samples * count);
  if (!args.flag(3)) std::fill_n(d_table, count, 0.0F);
  for (std::size_t sample = 0; sample < samples; ++sample)
    for (std::size_t i = 0; i < count; ++i) d_table[i] += d_out[sample * count + i];
}

}  // namespace train::host
