#include <kernels/kernel_list.hpp>

#include <stdexcept>

namespace train {
namespace {

constexpr std::array<KernelSource, kernel_count> sources{{
    {KernelId::EmbedForward, "embed_forward", 4, host::embed_forward},
    {KernelId::EmbedBackward, "embed_backward", 4, host::embed_backward},
    {KernelId::LayerNormForward, "layer_norm_forward", 6, host::layer_norm_forward},
    {KernelId::LayerNormBackwardInput, "layer_norm_backward_input", 6, host::layer_norm_backward_input},
    {KernelId::LayerNormBackwardParameters, "layer_norm_backward_parameters", 6, host::layer_norm_backward_parameters},
    {KernelId::MatrixProduct, "matrix_product", 3, host::matrix_product},
    {KernelId::AddBias, "add_bias", 2, host::add_bias},
    {KernelId::BiasBackward, "bias_backward", 2, host::bias_backward},
    {KernelId::AttentionForward, "attention_forward", 3, host::attention_forward},
    {KernelId::AttentionBackward, "attention_backward", 5, host::attention_backward},
    {KernelId::GeluForward, "gelu_forward", 2, host::gelu_forward},
    {KernelId::GeluBackward, "gelu_backward", 3, host::gelu_backward},
    {KernelId::Add, "add", 3, host::add},
    {KernelId::CrossEntropy, "cross_entropy", 4, host::cross_entropy},
    {KernelId::Mean, "mean", 2, host::mean},
    {KernelId::SquareSum, "square_sum", 2, host::square_sum},
    {KernelId::Total, "total", 2, host::total},
    {KernelId::ClipFactor, "clip_factor", 2, host::clip_factor},
    {KernelId::AdamW, "adam_w", 6, host::adam_w},
    {KernelId::Fault, "fault", 1, host::fault},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (static_cast<std::size_t>(sources[i].id) != i) return false;
  return true;
}
static_assert(in_order(), "kernel_sources() is indexed by KernelId");

}  // namespace

const std::array<KernelSource, kernel_count>& kernel_sources() { return sources; }

namespace host {

// Fails, for tests of faults. Buffers: the memory that it should have written.
void fault(const cox::KernelContext&) { throw std::runtime_error("injected: the kernel failed"); }

}  // namespace host
}  // namespace train
