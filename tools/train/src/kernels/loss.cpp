#include <kernels/kernel_list.hpp>
#include <kernels/vector_math.hpp>

#include <cmath>

namespace train::host {

// The cross entropy of each row; replaces the logits by their gradient times `scale`. Buffers: losses [rows], logits
// [rows, vocabulary], targets [rows]. Scalars: rows, vocabulary, scale.
void cross_entropy(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t rows = args.size(0);
  const std::size_t vocabulary = args.size(1);
  const float scale = args.number(2);
  float* const losses = args.out(0, rows);
  float* const logits = args.out(1, rows * vocabulary);
  const std::int32_t* const targets = args.tokens(2, rows);
  for (std::size_t row = 0; row < rows; ++row) {
    float* const x = logits + row * vocabulary;
    const auto target = static_cast<std::size_t>(targets[row]);
    const float logit_of_target = x[target];
    float highest = x[0];
    for (std::size_t i = 1; i < vocabulary; ++i) highest = x[i] > highest ? x[i] : highest;
    for (std::size_t i = 0; i < vocabulary; ++i) x[i] = fast_exp(x[i] - highest);
    const float total = sum(x, vocabulary);
    losses[row] = std::log(total) + highest - logit_of_target;
    const float factor = scale / total;
    for (std::size_t i = 0; i < vocabulary; ++i) x[i] *= factor;
    x[target] -= scale;
  }
}

// out [1] = scale * sum of x, or out += that. Buffers: out, x [count]. Scalars: count, scale, whether to add.
void mean(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t count = args.size(0);
  float* const out = args.out(0, 1);
  const float* const x = args.in(1, count);
  double total = 0;
  for (std::size_t i = 0; i < count; ++i) total += x[i];
  const auto value = static_cast<float>(total * static_cast<double>(args.number(1)));
  *out = args.flag(2) ? *out + value : value;
}

}  // namespace train::host
