#pragma once

#include <kernels/arguments.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace train {

/// The kernels of the engine. One launch of the library for each; there is no other device code, except products by
/// cuBLASLt.
enum class KernelId : std::uint8_t {
  EmbedForward,
  EmbedBackwardTokens,
  EmbedBackwardPositions,
  LayerNormForward,
  LayerNormBackwardInput,
  LayerNormBackwardChunks,
  BiasBackwardChunks,
  SumChunks,
  MatrixProduct,
  MatrixProductFloat,
  AddBias,
  AttentionForward,
  AttentionBackward,
  SplitHeads,
  MergeHeads,
  CausalSoftmax,
  CausalSoftmaxBackward,
  GeluForward,
  GeluBackward,
  Add,
  Zero,
  Copy,
  CrossEntropy,
  Mean,
  SquareSum,
  Total,
  ClipFactor,
  AdamW,
  AdamWRounded,
  RoundElements,
  Fault,
  GpuFault,
};
inline constexpr std::size_t kernel_count = static_cast<std::size_t>(KernelId::GpuFault) + 1;

/// Elements whose squares SquareSum adds to one sum.
inline constexpr std::size_t square_sum_elements = 8192;

/// The independent work items of a launch: rows and columns, in `batch` matrices.
struct Units {
  std::size_t rows = 1;
  std::size_t columns = 1;
  std::size_t batch = 1;
};

/// A CUDA C++ kernel.
struct CudaForm {
  const char* source = nullptr;   ///< of its file, without the prelude; null: there is none
  std::uint32_t threads = 0;      ///< of a block
  std::size_t rows = 1;           ///< of a block
  std::size_t columns = 1;        ///< of a block; 0: 16 bytes of activations for each thread
  std::size_t shared_memory = 0;  ///< bytes, in addition to what the kernel declares
};

/// A kernel in the forms in which devices take it. Buffers and scalars are in the same order in both; they are listed
/// at the host function, or at the CUDA kernel if there is no host function.
struct KernelSource {
  KernelId id;
  const char* name;
  std::size_t buffers;                      ///< number of buffers
  void (*host)(const cox::KernelContext&);  ///< the whole kernel in one call, on one thread; null: GPUs only
  CudaForm cuda;
};

/// All kernels, in the order of KernelId.
[[nodiscard]] const std::array<KernelSource, kernel_count>& kernel_sources();
/// The number of blocks that cover the work items. `bfloat16`: the type of activations.
[[nodiscard]] std::uint32_t cuda_blocks(const CudaForm& form, const Units& units, bool bfloat16);
/// The text that is compiled for a CUDA form: the type of activations, the prelude, and the kernel's file.
[[nodiscard]] std::string cuda_text(const CudaForm& form, bool bfloat16);

namespace host {

void embed_forward(const cox::KernelContext& context);
void embed_backward_tokens(const cox::KernelContext& context);
void embed_backward_positions(const cox::KernelContext& context);
void layer_norm_forward(const cox::KernelContext& context);
void layer_norm_backward_input(const cox::KernelContext& context);
void layer_norm_backward_chunks(const cox::KernelContext& context);
void bias_backward_chunks(const cox::KernelContext& context);
void sum_chunks(const cox::KernelContext& context);
void matrix_product(const cox::KernelContext& context);
void add_bias(const cox::KernelContext& context);
void attention_forward(const cox::KernelContext& context);
void attention_backward(const cox::KernelContext& context);
void gelu_forward(const cox::KernelContext& context);
void gelu_backward(const cox::KernelContext& context);
void add(const cox::KernelContext& context);
void zero(const cox::KernelContext& context);
void copy(const cox::KernelContext& context);
void cross_entropy(const cox::KernelContext& context);
void mean(const cox::KernelContext& context);
void square_sum(const cox::KernelContext& context);
void total(const cox::KernelContext& context);
void clip_factor(const cox::KernelContext& context);
void adam_w(const cox::KernelContext& context);
void fault(const cox::KernelContext& context);

}  // namespace host
}  // namespace train
