#include <kernels/kernel_list.hpp>

#include <algorithm>
#include <cstring>

namespace train::host {

// out [rows, width] = token_table[tokens] + position_table. Buffers: out, tokens [rows], token_table [vocabulary,
// width], position_table [context, width]. Scalars: rows, context, width, vocabulary. rows is a multiple of context.
void embed_forward(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t rows = args.size(0);
  const std::size_t length = args.size(1);
  const std::size_t width = args.size(2);
  float* const out = args.out(0, rows * width);
  const std::int32_t* const tokens = args.tokens(1, rows);
  const float* const token_table = args.in(2, args.size(3) * width);
  const float* const position_table = args.in(3, length * width);
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const token = token_table + static_cast<std::size_t>(tokens[row]) * width;
    const float* const position = position_table + (row % length) * width;
    for (std::size_t i = 0; i < width; ++i) out[row * width + i] = token[i] + position[i];
  }
}

// The gradients of both tables. Buffers: d_token_table, d_position_table, d_out [rows, width], tokens [rows]. Scalars:
// rows, context, width, vocabulary, whether to add to d_token_table, whether to add to d_position_table. Rows are added
// in their order: a CUDA form must not use atomic additions, whose order changes the bits.
void embed_backward(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t rows = args.size(0);
  const std::size_t length = args.size(1);
  const std::size_t width = args.size(2);
  const std::size_t vocabulary = args.size(3);
  float* const token_table = args.out(0, vocabulary * width);
  float* const position_table = args.out(1, length * width);
  const float* const d_out = args.in(2, rows * width);
  const std::int32_t* const tokens = args.tokens(3, rows);
  if (!args.flag(4)) std::fill_n(token_table, vocabulary * width, 0.0F);
  if (!args.flag(5)) std::fill_n(position_table, length * width, 0.0F);
  for (std::size_t row = 0; row < rows; ++row) {
    float* const token = token_table + static_cast<std::size_t>(tokens[row]) * width;
    float* const position = position_table + (row % length) * width;
    const float* const d = d_out + row * width;
    for (std::size_t i = 0; i < width; ++i) token[i] += d[i];
    for (std::size_t i = 0; i < width; ++i) position[i] += d[i];
  }
}

}  // namespace train::host
