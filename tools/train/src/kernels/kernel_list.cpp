#include <kernels/cuda_sources.hpp>
#include <kernels/kernel_list.hpp>

#include <stdexcept>

namespace train {
namespace {

constexpr std::size_t max_blocks = (std::size_t{1} << 31U) - 1;
constexpr std::size_t too_much = std::size_t{1} << 30U;  // bytes of shared memory

constexpr std::array<KernelSource, kernel_count> sources{{
    {KernelId::EmbedForward, "embed_forward", 4, host::embed_forward, {cuda_source::embedding, 256, 1, 0}},
    {KernelId::EmbedBackwardTokens,
     "embed_backward_tokens",
     5,
     host::embed_backward_tokens,
     {cuda_source::embedding, 256, 1, 64}},
    {KernelId::EmbedBackwardPositions,
     "embed_backward_positions",
     2,
     host::embed_backward_positions,
     {cuda_source::embedding, 256, 1, 0}},
    {KernelId::LayerNormForward,
     "layer_norm_forward",
     6,
     host::layer_norm_forward,
     {cuda_source::layer_norm, 256, 8, 1}},
    {KernelId::LayerNormBackwardInput,
     "layer_norm_backward_input",
     6,
     host::layer_norm_backward_input,
     {cuda_source::layer_norm, 256, 8, 1}},
    {KernelId::LayerNormBackwardChunks,
     "layer_norm_backward_chunks",
     5,
     host::layer_norm_backward_chunks,
     {cuda_source::column_sums, 256, 1, 64}},
    {KernelId::BiasBackwardChunks,
     "bias_backward_chunks",
     2,
     host::bias_backward_chunks,
     {cuda_source::column_sums, 256, 1, 64}},
    {KernelId::SumChunks, "sum_chunks", 2, host::sum_chunks, {cuda_source::column_sums, 256, 1, 32}},
    {KernelId::MatrixProduct, "matrix_product", 3, host::matrix_product, {cuda_source::matrix_product, 256, 64, 64}},
    {KernelId::MatrixProductFloat,
     "matrix_product_float",
     3,
     host::matrix_product,
     {cuda_source::matrix_product, 256, 64, 64}},
    {KernelId::AddBias, "add_bias", 2, host::add_bias, {cuda_source::elementwise, 256, 1, 0}},
    {KernelId::AttentionForward, "attention_forward", 3, host::attention_forward, {}},
    {KernelId::AttentionBackward, "attention_backward", 5, host::attention_backward, {}},
    {KernelId::SplitHeads, "split_heads", 2, nullptr, {cuda_source::attention, 256, 1, 0}},
    {KernelId::MergeHeads, "merge_heads", 2, nullptr, {cuda_source::attention, 256, 1, 0}},
    {KernelId::CausalSoftmax, "causal_softmax", 1, nullptr, {cuda_source::attention, 256, 8, 1}},
    {KernelId::CausalSoftmaxBackward, "causal_softmax_backward", 2, nullptr, {cuda_source::attention, 256, 8, 1}},
    {KernelId::GeluForward, "gelu_forward", 2, host::gelu_forward, {cuda_source::elementwise, 256, 1, 0}},
    {KernelId::GeluBackward, "gelu_backward", 3, host::gelu_backward, {cuda_source::elementwise, 256, 1, 0}},
    {KernelId::Add, "add", 3, host::add, {cuda_source::elementwise, 256, 1, 0}},
    {KernelId::Zero, "zero", 1, host::zero, {cuda_source::elementwise, 256, 1, 0}},
    {KernelId::Copy, "copy", 2, host::copy, {cuda_source::elementwise, 256, 1, 0}},
    {KernelId::CrossEntropy, "cross_entropy", 3, host::cross_entropy, {cuda_source::loss, 1024, 1, 1}},
    {KernelId::Mean, "mean", 2, host::mean, {cuda_source::loss, 1024, 1, 1}},
    {KernelId::SquareSum, "square_sum", 2, host::square_sum, {cuda_source::optimizer, 256, 1, square_sum_elements}},
    {KernelId::Total, "total", 2, host::total, {cuda_source::optimizer, 1024, 1, 1}},
    {KernelId::ClipFactor, "clip_factor", 2, host::clip_factor, {cuda_source::optimizer, 1, 1, 1}},
    {KernelId::AdamW, "adam_w", 6, host::adam_w, {cuda_source::optimizer, 256, 1, 1024}},
    {KernelId::AdamWRounded, "adam_w_rounded", 7, nullptr, {cuda_source::optimizer, 256, 1, 1024}},
    {KernelId::RoundElements, "round_elements", 2, nullptr, {cuda_source::elementwise, 256, 1, 0}},
    {KernelId::Fault, "fault", 1, host::fault, {cuda_source::fault, 32, 1, 1, too_much}},
    {KernelId::GpuFault, "gpu_fault", 1, nullptr, {cuda_source::fault, 32, 1, 1}},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (static_cast<std::size_t>(sources[i].id) != i) return false;
  return true;
}
static_assert(in_order(), "kernel_sources() is indexed by KernelId");

}  // namespace

const std::array<KernelSource, kernel_count>& kernel_sources() { return sources; }

std::uint32_t cuda_blocks(const CudaForm& form, const Units& units, bool bfloat16) {
  const auto blocks = [](std::size_t items, std::size_t of_block) { return (items + of_block - 1) / of_block; };
  const std::size_t lanes = bfloat16 ? 8 : 4;
  const std::size_t columns = form.columns == 0 ? form.threads * lanes : form.columns;
  const std::size_t count = blocks(units.rows, form.rows) * blocks(units.columns, columns) * units.batch;
  if (count > max_blocks) throw std::length_error("a launch has 2^31 blocks or more");
  return static_cast<std::uint32_t>(count);
}

std::string cuda_text(const CudaForm& form, bool bfloat16) {
  return std::string("#define COX_TRAIN_BF16 ") + (bfloat16 ? "1\n" : "0\n") + cuda_source::prelude + form.source;
}

namespace host {

// Fails, for tests of faults. Buffers: the memory that it should have written.
void fault(const cox::KernelContext&) { throw std::runtime_error("injected: the kernel failed"); }

}  // namespace host
}  // namespace train
