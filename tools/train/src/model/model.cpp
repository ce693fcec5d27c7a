#include <data/token_order.hpp>
#include <model/model.hpp>

#include <algorithm>
#include <utility>

namespace train {

template <class Backend>
Model<Backend>::Model(Device<Backend> device, const ModelShape& shape, const Stage& stage, std::size_t samples,
                      std::size_t batches, std::size_t slots, std::vector<cox::Handle> parameters)
    : device_(std::move(device)),
      shape_(shape),
      stage_(stage),
      samples_(samples),
      rows_(samples * shape.context),
      attention_{samples, shape.context, shape.heads, shape.width},
      list_(shape, stage),
      chunks_(device_.row_chunks(rows_)),
      runs_(std::min(rows_, shape.vocabulary)),
      parameters_(std::move(parameters)),
      scratch_(make_scratch(device_, shape, samples)) {
  // Parameters outlive everything else: in a pool of their own they leave no gaps between activations. Each has an
  // allocation of its own, because the library orders work and tracks failures by allocation.
  device_.client().memory_persistent_allocation([&] {
    const bool has_memory = !parameters_.empty();
    for (std::size_t i = 0; i < list_.size(); ++i) {
      if (!has_memory) parameters_.push_back(device_.floats(list_[i].elements));
      weights_.push_back(has_copies() ? device_.activations(list_[i].elements) : parameters_[i]);
    }
  });
  for (std::size_t i = 0; i < batches; ++i)
    batches_.push_back(
        {device_.floats(rows_), device_.floats(rows_), device_.floats(rows_), device_.floats(runs_ + 1)});
  for (std::size_t i = 0; i < slots; ++i) slots_.push_back(make_activations(device_, shape, stage, samples));
}

template <class Backend>
void Model<Backend>::allocate_gradients() {
  device_.client().memory_persistent_allocation([&] {
    for (const Parameter& parameter : list_.all()) gradients_.push_back(device_.floats(parameter.elements));
  });
}

template <class Backend>
void Model<Backend>::round(std::size_t index) {
  if (!has_copies()) return;
  const std::size_t count = list_[index].elements;
  device_.launch(KernelId::RoundElements, {.columns = count},
                 Launch().out(weights_[index]).in(parameters_[index]).size(count));
}

template <class Backend>
const cox::Handle& Model<Backend>::output(std::size_t slot) const {
  return slots_[slot].layers.back().output;
}

template <class Backend>
void Model<Backend>::set_batch(std::size_t batch, const TokenBatch& text) {
  if (stage_.embeds) {
    TokenOrder sorted(text.tokens, runs_);
    device_.client().write(batches_[batch].tokens, cox::Bytes::copy_of(text.tokens));
    device_.client().write(batches_[batch].order, cox::Bytes::from_vector(std::move(sorted.order)));
    device_.client().write(batches_[batch].begins, cox::Bytes::from_vector(std::move(sorted.begins)));
  }
  if (stage_.predicts) device_.client().write(batches_[batch].targets, cox::Bytes::copy_of(text.targets));
}

template <class Backend>
void Model<Backend>::forward(std::size_t number, std::size_t batch) {
  const Activations& slot = slots_[number];
  if (stage_.embeds)
    device_.launch(KernelId::EmbedForward, {.columns = rows_ * shape_.width},
                   Launch()
                       .out(slot.input)
                       .in(batches_[batch].tokens)
                       .in(weights_[list_.token_table])
                       .in(weights_[list_.position_table])
                       .size(rows_)
                       .size(shape_.context)
                       .size(shape_.width));
  for (std::size_t layer = 0; layer < slot.layers.size(); ++layer) layer_forward(slot, layer);
  if (!stage_.predicts) return;
  norm_forward(slot.norm, slot.mean, slot.rstd, slot.layers.back().output, list_.last_gain, list_.last_bias);
  device_.product(slot.logits, slot.norm, weights_[list_.output],
                  {.m = rows_, .n = shape_.vocabulary, .k = shape_.width, .b_transposed = true});
}

template <class Backend>
void Model<Backend>::loss(std::size_t number, std::size_t batch, float scale) {
  const Activations& slot = slots_[number];
  device_.launch(KernelId::CrossEntropy, {.rows = rows_},
                 Launch()
                     .out(slot.losses)
                     .inout(slot.logits)
                     .in(batches_[batch].targets)
                     .size(rows_)
                     .size(shape_.vocabulary)
                     .number(scale));
}

template <class Backend>
void Model<Backend>::backward(std::size_t number, std::size_t batch, bool accumulate, const GradientReady& ready) {
  const Activations& slot = slots_[number];
  if (stage_.predicts) {
    // A tied table gets a second share from the embedding below, and is ready after that.
    device_.product(gradients_[list_.output], slot.logits, slot.norm,
                    {.m = shape_.vocabulary,
                     .n = shape_.width,
                     .k = rows_,
                     .a_transposed = true,
                     .accumulate = accumulate,
                     .float_result = true});
    if (!shape_.tied) ready(list_.output);
    device_.product(scratch_.d_narrow, slot.logits, weights_[list_.output],
                    {.m = rows_, .n = shape_.width, .k = shape_.vocabulary});
    norm_backward(scratch_.d_narrow, slot.layers.back().output, slot.mean, slot.rstd, list_.last_gain, list_.last_bias,
                  false, accumulate, ready);
  }
  for (std::size_t layer = slot.layers.size(); layer-- > 0;) layer_backward(slot, layer, accumulate, ready);
  if (!stage_.embeds) return;
  device_.launch(KernelId::EmbedBackwardPositions, {.columns = shape_.context * shape_.width},
                 Launch()
                     .sum(gradients_[list_.position_table], accumulate)
                     .in(scratch_.d_residual)
                     .size(rows_)
                     .size(shape_.context)
                     .size(shape_.width)
                     .flag(accumulate));
  ready(list_.position_table);
  const cox::Handle& table = gradients_[list_.token_table];
  if (!accumulate && !(shape_.tied && stage_.predicts)) {
    const std::size_t count = list_[list_.token_table].elements;
    device_.launch(KernelId::Zero, {.columns = count}, Launch().out(table).size(count));
  }
  device_.launch(KernelId::EmbedBackwardTokens, {.rows = runs_, .columns = shape_.width},
                 Launch()
                     .inout(table)
                     .in(scratch_.d_residual)
                     .in(batches_[batch].tokens)
                     .in(batches_[batch].order)
                     .in(batches_[batch].begins)
                     .size(rows_)
                     .size(shape_.width)
                     .size(runs_));
  ready(list_.token_table);
}

template <class Backend>
void Model<Backend>::layer_forward(const Activations& slot, std::size_t layer) {
  const LayerParameters& at = list_.layers[layer];
  const LayerActivations& a = slot.layers[layer];
  const cox::Handle& x = input_of(slot, layer);
  const std::size_t width = shape_.width;
  const auto add = [&](const cox::Handle& sum, const cox::Handle& residual) {
    device_.launch(KernelId::Add, {.columns = rows_ * width},
                   Launch().out(sum).in(residual).in(scratch_.projected).size(rows_ * width));
  };

  norm_forward(a.norm1, a.mean1, a.rstd1, x, at.norm1_gain, at.norm1_bias);
  linear_forward(a.qkv, a.norm1, at.qkv, at.qkv_bias, width, 3 * width);
  attention_forward(device_, attention_, a.heads, a.attention, scratch_.attention, a.qkv);
  linear_forward(scratch_.projected, a.heads, at.projection, at.projection_bias, width, width);
  add(a.middle, x);

  norm_forward(a.norm2, a.mean2, a.rstd2, a.middle, at.norm2_gain, at.norm2_bias);
  linear_forward(a.mlp_in, a.norm2, at.mlp_in, at.mlp_in_bias, width, 4 * width);
  device_.launch(KernelId::GeluForward, {.columns = rows_ * 4 * width},
                 Launch().out(a.active).in(a.mlp_in).size(rows_ * 4 * width));
  linear_forward(scratch_.projected, a.active, at.mlp_out, at.mlp_out_bias, 4 * width, width);
  add(a.output, a.middle);
}

template <class Backend>
void Model<Backend>::layer_backward(const Activations& slot, std::size_t layer, bool accumulate,
                                    const GradientReady& ready) {
  const LayerParameters& at = list_.layers[layer];
  const LayerActivations& a = slot.layers[layer];
  const cox::Handle& x = input_of(slot, layer);
  const std::size_t width = shape_.width;

  linear_backward(scratch_.d_wide, scratch_.d_residual, a.active, at.mlp_out, at.mlp_out_bias, 4 * width, width,
                  accumulate, ready);
  device_.launch(KernelId::GeluBackward, {.columns = rows_ * 4 * width},
                 Launch().out(scratch_.d_wide_input).in(scratch_.d_wide).in(a.mlp_in).size(rows_ * 4 * width));
  linear_backward(scratch_.d_narrow, scratch_.d_wide_input, a.norm2, at.mlp_in, at.mlp_in_bias, width, 4 * width,
                  accumulate, ready);
  norm_backward(scratch_.d_narrow, a.middle, a.mean2, a.rstd2, at.norm2_gain, at.norm2_bias, true, accumulate, ready);

  linear_backward(scratch_.d_narrow, scratch_.d_residual, a.heads, at.projection, at.projection_bias, width, width,
                  accumulate, ready);
  attention_backward(device_, attention_, scratch_.d_qkv, scratch_.attention, scratch_.d_narrow, a.attention, a.qkv);
  linear_backward(scratch_.d_narrow, scratch_.d_qkv, a.norm1, at.qkv, at.qkv_bias, width, 3 * width, accumulate, ready);
  norm_backward(scratch_.d_narrow, x, a.mean1, a.rstd1, at.norm1_gain, at.norm1_bias, true, accumulate, ready);
}

template <class Backend>
void Model<Backend>::norm_forward(const cox::Handle& out, const cox::Handle& mean, const cox::Handle& rstd,
                                  const cox::Handle& x, std::size_t gain, std::size_t bias) {
  device_.launch(
      KernelId::LayerNormForward, {.rows = rows_},
      Launch().out(out).out(mean).out(rstd).in(x).in(weights_[gain]).in(weights_[bias]).size(rows_).size(shape_.width));
}

template <class Backend>
void Model<Backend>::norm_backward(const cox::Handle& d_out, const cox::Handle& x, const cox::Handle& mean,
                                   const cox::Handle& rstd, std::size_t gain, std::size_t bias, bool add_to_residual,
                                   bool accumulate, const GradientReady& ready) {
  const std::size_t width = shape_.width;
  device_.launch(
      KernelId::LayerNormBackwardChunks, {.rows = chunks_, .columns = width},
      Launch().inout(scratch_.partials).in(d_out).in(x).in(mean).in(rstd).size(rows_).size(width).size(chunks_));
  sum_chunks(bias, 2 * width, width, width, accumulate);
  sum_chunks(gain, 2 * width, 0, width, accumulate);
  ready(bias);
  ready(gain);
  device_.launch(KernelId::LayerNormBackwardInput, {.rows = rows_},
                 Launch()
                     .sum(scratch_.d_residual, add_to_residual)
                     .in(d_out)
                     .in(x)
                     .in(mean)
                     .in(rstd)
                     .in(weights_[gain])
                     .size(rows_)
                     .size(shape_.width)
                     .flag(add_to_residual));
}

template <class Backend>
void Model<Backend>::linear_forward(const cox::Handle& out, const cox::Handle& x, std::size_t weight, std::size_t bias,
                                    std::size_t from, std::size_t to) {
  device_.product_and_bias(out, x, weights_[weight], weights_[bias], {.m = rows_, .n = to, .k = from});
}

template <class Backend>
void Model<Backend>::linear_backward(const cox::Handle& d_x, const cox::Handle& d_out, const cox::Handle& x,
                                     std::size_t weight, std::size_t bias, std::size_t from, std::size_t to,
                                     bool accumulate, const GradientReady& ready) {
  device_.launch(KernelId::BiasBackwardChunks, {.rows = chunks_, .columns = to},
                 Launch().inout(scratch_.partials).in(d_out).size(rows_).size(to).size(chunks_));
  sum_chunks(bias, to, 0, to, accumulate);
  ready(bias);
  device_.product(
      gradients_[weight], x, d_out,
      {.m = from, .n = to, .k = rows_, .a_transposed = true, .accumulate = accumulate, .float_result = true});
  ready(weight);
  device_.product(d_x, d_out, weights_[weight], {.m = rows_, .n = from, .k = to, .b_transposed = true});
}

// The gradient becomes the sum of the chunks of scratch_.partials, or that is added to it.
template <class Backend>
void Model<Backend>::sum_chunks(std::size_t gradient, std::size_t stride, std::size_t first, std::size_t width,
                                bool accumulate) {
  device_.launch(KernelId::SumChunks, {.columns = width},
                 Launch()
                     .sum(gradients_[gradient], accumulate)
                     .in(scratch_.partials)
                     .size(chunks_)
                     .size(stride)
                     .size(first)
                     .size(width)
                     .flag(accumulate));
}

template class Model<HostBackend>;
#ifdef TRAIN_CUDA
template class Model<CudaBackend>;
#endif

}  // namespace train
