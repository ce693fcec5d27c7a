#include <data/random.hpp>
#include <model/shape.hpp>

#include <cmath>
#include <utility>

namespace train {

Stage stage_of(const ModelShape& shape, std::size_t index, std::size_t count) {
  return {shape.layers * index / count, shape.layers * (index + 1) / count, index == 0, index + 1 == count};
}

ParameterList::ParameterList(const ModelShape& shape, const Stage& stage) {
  const std::size_t width = shape.width;
  const float deviation = 0.02F;
  // Products that are added to the residual stream start smaller, because there are two for each layer.
  const float residual = deviation / std::sqrt(2.0F * static_cast<float>(shape.layers));
  if (stage.embeds) {
    token_table = add("token_table", shape.vocabulary * width, Initial::Normal, deviation);
    position_table = add("position_table", shape.context * width, Initial::Normal, deviation);
  }
  for (std::size_t i = stage.first_layer; i < stage.end_layer; ++i) {
    std::string layer = "layer";
    layer.append(std::to_string(i)).append(".");
    LayerParameters at{};
    at.norm1_gain = add(layer + "norm1.gain", width, Initial::One);
    at.norm1_bias = add(layer + "norm1.bias", width, Initial::Zero);
    at.qkv = add(layer + "attention.qkv.weight", width * 3 * width, Initial::Normal, deviation);
    at.qkv_bias = add(layer + "attention.qkv.bias", 3 * width, Initial::Zero);
    at.projection = add(layer + "attention.out.weight", width * width, Initial::Normal, residual);
    at.projection_bias = add(layer + "attention.out.bias", width, Initial::Zero);
    at.norm2_gain = add(layer + "norm2.gain", width, Initial::One);
    at.norm2_bias = add(layer + "norm2.bias", width, Initial::Zero);
    at.mlp_in = add(layer + "mlp.in.weight", width * 4 * width, Initial::Normal, deviation);
    at.mlp_in_bias = add(layer + "mlp.in.bias", 4 * width, Initial::Zero);
    at.mlp_out = add(layer + "mlp.out.weight", 4 * width * width, Initial::Normal, residual);
    at.mlp_out_bias = add(layer + "mlp.out.bias", width, Initial::Zero);
    layers.push_back(at);
  }
  if (stage.predicts) {
    last_gain = add("last_norm.gain", width, Initial::One);
    last_bias = add("last_norm.bias", width, Initial::Zero);
    output = shape.tied ? token_table : add("output", shape.vocabulary * width, Initial::Normal, deviation);
  }
}

std::size_t ParameterList::elements() const {
  std::size_t sum = 0;
  for (const Parameter& parameter : all_) sum += parameter.elements;
  return sum;
}

std::size_t ParameterList::add(std::string name, std::size_t elements, Initial initial, float deviation) {
  all_.push_back({std::move(name), elements, initial, deviation, initial == Initial::Normal});
  return all_.size() - 1;
}

std::vector<float> initial_values(const Parameter& parameter, std::size_t seed) {
  std::vector<float> values(parameter.elements, parameter.initial == Initial::One ? 1.0F : 0.0F);
  if (parameter.initial == Initial::Normal) {
    Random random(seed, parameter.name);
    for (float& value : values) value = parameter.deviation * random.normal();
  }
  return values;
}

}  // namespace train
