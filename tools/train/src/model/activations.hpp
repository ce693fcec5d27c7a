#pragma once

#include <engine/device.hpp>
#include <model/attention.hpp>
#include <model/shape.hpp>

#include <cstddef>
#include <vector>

namespace train {

/// What the forward pass of one layer keeps for the backward pass. `rows` is batch * context. Means and reciprocal
/// standard deviations are floats, everything else has the type of activations.
struct LayerActivations {
  cox::Handle norm1, mean1, rstd1;  ///< [rows, width], [rows], [rows]
  cox::Handle qkv;                  ///< [rows, 3 * width]
  AttentionMemory attention;
  cox::Handle heads;                ///< [rows, width]
  cox::Handle middle;               ///< [rows, width], after the attention
  cox::Handle norm2, mean2, rstd2;  ///< as norm1
  cox::Handle mlp_in, active;       ///< [rows, 4 * width]
  cox::Handle output;               ///< [rows, width]
};

/// The input of a micro-batch, and the characters that follow it. 32-bit integers.
struct BatchMemory {
  cox::Handle tokens, targets;  ///< [rows]
  cox::Handle order, begins;    ///< see TokenOrder
};

/// The memory of one micro-batch of a stage between its forward and its backward pass.
struct Activations {
  cox::Handle input;  ///< [rows, width], of the first layer of the stage
  std::vector<LayerActivations> layers;
  cox::Handle norm, mean, rstd;  ///< of the last norm
  cox::Handle logits;            ///< [rows, vocabulary]; after the loss their gradient
  cox::Handle losses;            ///< [rows], floats
};

/// Memory that the layers and micro-batches of a stage use one after the other.
struct Scratch {
  cox::Handle projected;             ///< [rows, width]
  cox::Handle d_residual;            ///< [rows, width], the gradient of the residual stream
  cox::Handle d_narrow;              ///< [rows, width]
  cox::Handle d_qkv;                 ///< [rows, 3 * width]
  cox::Handle d_wide, d_wide_input;  ///< [rows, 4 * width]
  AttentionScratch attention;
  cox::Handle partials;  ///< floats, of sums over rows: [chunks, 4 * width]
};

template <class Backend>
[[nodiscard]] Activations make_activations(const Device<Backend>& device, const ModelShape& shape, const Stage& stage,
                                           std::size_t batch);
template <class Backend>
[[nodiscard]] Scratch make_scratch(const Device<Backend>& device, const ModelShape& shape, std::size_t batch);

}  // namespace train
