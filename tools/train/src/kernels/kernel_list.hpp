#pragma once

#include <kernels/arguments.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace train {

/// The kernels of the engine. One launch of the library for each; there is no other device code.
enum class KernelId : std::uint8_t {
  EmbedForward,
  EmbedBackward,
  LayerNormForward,
  LayerNormBackwardInput,
  LayerNormBackwardParameters,
  MatrixProduct,
  AddBias,
  BiasBackward,
  AttentionForward,
  AttentionBackward,
  GeluForward,
  GeluBackward,
  Add,
  CrossEntropy,
  Mean,
  SquareSum,
  Total,
  ClipFactor,
  AdamW,
  Fault,
};
inline constexpr std::size_t kernel_count = static_cast<std::size_t>(KernelId::Fault) + 1;

/// A kernel in the forms in which devices take it. Buffers and scalars are in the same order in every form; they are
/// listed at the host function.
struct KernelSource {
  KernelId id;
  const char* name;
  std::size_t buffers;                      ///< number of buffers
  void (*host)(const cox::KernelContext&);  ///< the whole kernel in one call, on one thread
  const char* cuda = nullptr;               ///< CUDA C++ for CudaKernel::from_source; not written yet
};

/// All kernels, in the order of KernelId.
[[nodiscard]] const std::array<KernelSource, kernel_count>& kernel_sources();

namespace host {

void embed_forward(const cox::KernelContext& context);
void embed_backward(const cox::KernelContext& context);
void layer_norm_forward(const cox::KernelContext& context);
void layer_norm_backward_input(const cox::KernelContext& context);
void layer_norm_backward_parameters(const cox::KernelContext& context);
void matrix_product(const cox::KernelContext& context);
void add_bias(const cox::KernelContext& context);
void bias_backward(const cox::KernelContext& context);
void attention_forward(const cox::KernelContext& context);
void attention_backward(const cox::KernelContext& context);
void gelu_forward(const cox::KernelContext& context);
void gelu_backward(const cox::KernelContext& context);
void add(const cox::KernelContext& context);
void cross_entropy(const cox::KernelContext& context);
void mean(const cox::KernelContext& context);
void square_sum(const cox::KernelContext& context);
void total(const cox::KernelContext& context);
void clip_factor(const cox::KernelContext& context);
void adam_w(const cox::KernelContext& context);
void fault(const cox::KernelContext& context);

}  // namespace host
}  // namespace train
