#include <model/activations.hpp>

namespace train {

template <class Backend>
Activations make_activations(const Device<Backend>& device, const ModelShape& shape, const Stage& stage,
                             std::size_t batch) {
  const std::size_t rows = batch * shape.context;
  const std::size_t narrow = rows * shape.width;
  Activations made;
  made.input = device.floats(narrow);
  for (std::size_t i = stage.first_layer; i < stage.end_layer; ++i) {
    LayerActivations layer;
    layer.norm1 = device.floats(narrow);
    layer.mean1 = device.floats(rows);
    layer.rstd1 = device.floats(rows);
    layer.qkv = device.floats(3 * narrow);
    layer.probabilities = device.floats(rows * shape.heads * shape.context);
    layer.heads = device.floats(narrow);
    layer.middle = device.floats(narrow);
    layer.norm2 = device.floats(narrow);
    layer.mean2 = device.floats(rows);
    layer.rstd2 = device.floats(rows);
    layer.mlp_in = device.floats(4 * narrow);
    layer.active = device.floats(4 * narrow);
    layer.output = device.floats(narrow);
    made.layers.push_back(std::move(layer));
  }
  if (stage.predicts) {
    made.norm = device.floats(narrow);
    made.mean = device.floats(rows);
    made.rstd = device.floats(rows);
    made.logits = device.floats(rows * shape.vocabulary);
    made.d_logits = device.floats(rows * shape.vocabulary);
    made.losses = device.floats(rows);
  }
  return made;
}

template <class Backend>
Scratch make_scratch(const Device<Backend>& device, const ModelShape& shape, std::size_t batch) {
  const std::size_t narrow = batch * shape.context * shape.width;
  Scratch made;
  made.projected = device.floats(narrow);
  made.d_residual = device.floats(narrow);
  made.d_narrow = device.floats(narrow);
  made.d_qkv = device.floats(3 * narrow);
  made.d_wide = device.floats(4 * narrow);
  made.d_wide_input = device.floats(4 * narrow);
  made.d_scores = device.floats(shape.context * shape.context);
  return made;
}

template Activations make_activations(const Device<HostBackend>&, const ModelShape&, const Stage&, std::size_t);
template Scratch make_scratch(const Device<HostBackend>&, const ModelShape&, std::size_t);

}  // namespace train
