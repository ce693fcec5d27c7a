#include <engine/backends.hpp>
#include <model/activations.hpp>

namespace train {

template <class Backend>
Activations make_activations(const Device<Backend>& device, const ModelShape& shape, const Stage& stage,
                             std::size_t batch) {
  const std::size_t rows = batch * shape.context;
  const std::size_t narrow = rows * shape.width;
  const AttentionShape attention{batch, shape.context, shape.heads, shape.width};
  Activations made;
  made.input = device.activations(narrow);
  for (std::size_t i = stage.first_layer; i < stage.end_layer; ++i) {
    LayerActivations layer;
    layer.norm1 = device.activations(narrow);
    layer.mean1 = device.floats(rows);
    layer.rstd1 = device.floats(rows);
    layer.qkv = device.activations(3 * narrow);
    layer.attention = make_attention_memory(device, attention);
    layer.heads = device.activations(narrow);
    layer.middle = device.activations(narrow);
    layer.norm2 = device.activations(narrow);
    layer.mean2 = device.floats(rows);
    layer.rstd2 = device.floats(rows);
    layer.mlp_in = device.activations(4 * narrow);
    layer.active = device.activations(4 * narrow);
    layer.output = device.activations(narrow);
    made.layers.push_back(std::move(layer));
  }
  if (stage.predicts) {
    made.norm = device.activations(narrow);
    made.mean = device.floats(rows);
    made.rstd = device.floats(rows);
    made.logits = device.activations(rows * shape.vocabulary);
    made.losses = device.floats(rows);
  }
  return made;
}

template <class Backend>
Scratch make_scratch(const Device<Backend>& device, const ModelShape& shape, std::size_t batch) {
  const std::size_t narrow = batch * shape.context * shape.width;
  Scratch made;
  made.projected = device.activations(narrow);
  made.d_residual = device.activations(narrow);
  made.d_narrow = device.activations(narrow);
  made.d_qkv = device.activations(3 * narrow);
  made.d_wide = device.activations(4 * narrow);
  made.d_wide_input = device.activations(4 * narrow);
  made.attention = make_attention_scratch(device, AttentionShape{batch, shape.context, shape.heads, shape.width});
  made.partials = device.floats(device.row_chunks(batch * shape.context) * 4 * shape.width);
  return made;
}

template Activations make_activations(const Device<HostBackend>&, const ModelShape&, const Stage&, std::size_t);
template Scratch make_scratch(const Device<HostBackend>&, const ModelShape&, std::size_t);
#ifdef TRAIN_CUDA
template Activations make_activations(const Device<CudaBackend>&, const ModelShape&, const Stage&, std::size_t);
template Scratch make_scratch(const Device<CudaBackend>&, const ModelShape&, std::size_t);
#endif

}  // namespace train
