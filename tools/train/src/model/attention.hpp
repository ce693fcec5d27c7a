#pragma once

#include <engine/backends.hpp>

#include <cstddef>

namespace train {

struct AttentionShape {
  std::size_t samples;
  std::size_t context;
  std::size_t heads;
  std::size_t width;

  [[nodiscard]] std::size_t depth() const { return width / heads; }
};

/// What the forward pass of an attention keeps for the backward pass.
struct AttentionMemory {
  cox::Handle probabilities;  ///< [samples, heads, context, context]
  cox::Handle qkv_by_head;    ///< [3, samples, heads, context, depth]; GPUs only
};

/// Memory that the attentions of all layers use one after the other.
struct AttentionScratch {
  cox::Handle d_scores;       ///< [context, context]; on GPUs [samples, heads, context, context]
  cox::Handle heads_by_head;  ///< [samples, heads, context, depth]; GPUs only
  cox::Handle d_qkv_by_head;  ///< [3, samples, heads, context, depth]; GPUs only
};

// Causal attention. qkv and its gradient: [rows, 3, heads, depth], heads and its gradient: [rows, heads, depth], where
// rows is samples * context. On a host device it is one kernel; on a GPU it consists of products for each head.

template <class Backend>
[[nodiscard]] AttentionMemory make_attention_memory(const Device<Backend>& device, const AttentionShape& shape);
template <class Backend>
[[nodiscard]] AttentionScratch make_attention_scratch(const Device<Backend>& device, const AttentionShape& shape);
template <class Backend>
void attention_forward(const Device<Backend>& device, const AttentionShape& shape, const cox::Handle& heads,
                       const AttentionMemory& memory, const AttentionScratch& scratch, const cox::Handle& qkv);
template <class Backend>
void attention_backward(const Device<Backend>& device, const AttentionShape& shape, const cox::Handle& d_qkv,
                        const AttentionScratch& scratch, const cox::Handle& d_heads, const AttentionMemory& memory,
                        const cox::Handle& qkv);

}  // namespace train
