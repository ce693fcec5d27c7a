#include <model/attention.hpp>

#include <cmath>
#include <cstddef>
#include <numeric>

namespace train {
namespace {

std::size_t elements(const AttentionShape& shape) { return shape.samples * shape.context * shape.width; }

// Part 0, 1 or 2 of memory by head: the queries, keys or values, or their gradients.
template <class Backend>
cox::Handle part(const Device<Backend>& device, const AttentionShape& shape, const cox::Handle& by_head,
                 std::size_t number) {
  const std::size_t bytes = elements(shape) * cox::element_size(device.element_type());
  return by_head.offset_start(number * bytes).offset_end((2 - number) * bytes);
}

// Copies between the order of positions and that of heads.
template <class Backend>
void reorder(const Device<Backend>& device, KernelId kernel, const AttentionShape& shape, std::size_t parts,
             const cox::Handle& out, const cox::Handle& x) {
  device.launch(kernel, {.columns = parts * elements(shape)},
                Launch()
                    .out(out)
                    .in(x)
                    .size(shape.samples)
                    .size(shape.context)
                    .size(parts)
                    .size(shape.heads)
                    .size(shape.depth()));
}

// A product for each head of each sample.
template <class Backend>
Product by_head(const Device<Backend>& device, const AttentionShape& shape, std::size_t m, std::size_t n,
                std::size_t k) {
  const std::size_t bytes = elements(shape) * cox::element_size(device.element_type());
  return {.m = m, .n = n, .k = k, .batch = shape.samples * shape.heads, .alignment = std::gcd(std::size_t{256}, bytes)};
}

Product transposed_a(Product product) {
  product.a_transposed = true;
  return product;
}
Product transposed_b(Product product) {
  product.b_transposed = true;
  return product;
}

std::size_t rows_of_scores(const AttentionShape& shape) { return shape.samples * shape.heads * shape.context; }
float scale_of_scores(const AttentionShape& shape) { return 1.0F / std::sqrt(static_cast<float>(shape.depth())); }

}  // namespace

template <class Backend>
AttentionMemory make_attention_memory(const Device<Backend>& device, const AttentionShape& shape) {
  const cox::Handle probabilities = device.activations(rows_of_scores(shape) * shape.context);
  if constexpr (!Backend::attention_by_head) return {probabilities, {}};
  return {probabilities, device.activations(3 * elements(shape))};
}

template <class Backend>
AttentionScratch make_attention_scratch(const Device<Backend>& device, const AttentionShape& shape) {
  if constexpr (!Backend::attention_by_head) return {device.activations(shape.context * shape.context), {}, {}};
  return {device.activations(rows_of_scores(shape) * shape.context), device.activations(elements(shape)),
          device.activations(3 * elements(shape))};
}

template <class Backend>
void attention_forward(const Device<Backend>& device, const AttentionShape& shape, const cox::Handle& heads,
                       const AttentionMemory& memory, const AttentionScratch& scratch, const cox::Handle& qkv) {
  if constexpr (!Backend::attention_by_head) {
    device.launch(KernelId::AttentionForward, {},
                  Launch()
                      .out(heads)
                      .out(memory.probabilities)
                      .in(qkv)
                      .size(shape.samples)
                      .size(shape.context)
                      .size(shape.heads)
                      .size(shape.width));
    return;
  }
  const std::size_t context = shape.context;
  const std::size_t depth = shape.depth();
  reorder(device, KernelId::SplitHeads, shape, 3, memory.qkv_by_head, qkv);
  const cox::Handle q = part(device, shape, memory.qkv_by_head, 0);
  const cox::Handle k = part(device, shape, memory.qkv_by_head, 1);
  const cox::Handle v = part(device, shape, memory.qkv_by_head, 2);
  device.product(memory.probabilities, q, k, transposed_b(by_head(device, shape, context, context, depth)));
  device.launch(
      KernelId::CausalSoftmax, {.rows = rows_of_scores(shape)},
      Launch().inout(memory.probabilities).size(rows_of_scores(shape)).size(context).number(scale_of_scores(shape)));
  device.product(scratch.heads_by_head, memory.probabilities, v, by_head(device, shape, context, depth, context));
  reorder(device, KernelId::MergeHeads, shape, 1, heads, scratch.heads_by_head);
}

template <class Backend>
void attention_backward(const Device<Backend>& device, const AttentionShape& shape, const cox::Handle& d_qkv,
                        const AttentionScratch& scratch, const cox::Handle& d_heads, const AttentionMemory& memory,
                        const cox::Handle& qkv) {
  if constexpr (!Backend::attention_by_head) {
    device.launch(KernelId::AttentionBackward, {},
                  Launch()
                      .out(d_qkv)
                      .out(scratch.d_scores)
                      .in(d_heads)
                      .in(memory.probabilities)
                      .in(qkv)
                      .size(shape.samples)
                      .size(shape.context)
                      .size(shape.heads)
                      .size(shape.width));
    return;
  }
  const std::size_t context = shape.context;
  const std::size_t depth = shape.depth();
  const cox::Handle q = part(device, shape, memory.qkv_by_head, 0);
  const cox::Handle k = part(device, shape, memory.qkv_by_head, 1);
  const cox::Handle v = part(device, shape, memory.qkv_by_head, 2);
  const Product scores = by_head(device, shape, context, context, depth);
  const Product heads = by_head(device, shape, context, depth, context);
  reorder(device, KernelId::SplitHeads, shape, 1, scratch.heads_by_head, d_heads);
  device.product(part(device, shape, scratch.d_qkv_by_head, 2), memory.probabilities, scratch.heads_by_head,
                 transposed_a(heads));
  device.product(scratch.d_scores, scratch.heads_by_head, v, transposed_b(scores));
  device.launch(KernelId::CausalSoftmaxBackward, {.rows = rows_of_scores(shape)},
                Launch()
                    .inout(scratch.d_scores)
                    .in(memory.probabilities)
                    .size(rows_of_scores(shape))
                    .size(context)
                    .number(scale_of_scores(shape)));
  device.product(part(device, shape, scratch.d_qkv_by_head, 0), scratch.d_scores, k, heads);
  device.product(part(device, shape, scratch.d_qkv_by_head, 1), scratch.d_scores, q, transposed_a(heads));
  reorder(device, KernelId::MergeHeads, shape, 3, d_qkv, scratch.d_qkv_by_head);
}

template AttentionMemory make_attention_memory(const Device<HostBackend>&, const AttentionShape&);
template AttentionScratch make_attention_scratch(const Device<HostBackend>&, const AttentionShape&);
template void attention_forward(const Device<HostBackend>&, const AttentionShape&, const cox::Handle&,
                                const AttentionMemory&, const AttentionScratch&, const cox::Handle&);
template void attention_backward(const Device<HostBackend>&, const AttentionShape&, const cox::Handle&,
                                 const AttentionScratch&, const cox::Handle&, const AttentionMemory&,
                                 const cox::Handle&);
#ifdef TRAIN_CUDA
template AttentionMemory make_attention_memory(const Device<CudaBackend>&, const AttentionShape&);
template AttentionScratch make_attention_scratch(const Device<CudaBackend>&, const AttentionShape&);
template void attention_forward(const Device<CudaBackend>&, const AttentionShape&, const cox::Handle&,
                                const AttentionMemory&, const AttentionScratch&, const cox::Handle&);
template void attention_backward(const Device<CudaBackend>&, const AttentionShape&, const cox::Handle&,
                                 const AttentionScratch&, const cox::Handle&, const AttentionMemory&,
                                 const cox::Handle&);
#endif

}  // namespace train
