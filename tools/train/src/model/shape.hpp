#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace train {

/// The shape of the model: a decoder-only transformer as GPT-2.
struct ModelShape {
  std::size_t vocabulary = 0;  ///< number of different characters
  std::size_t context = 64;    ///< characters that the model sees
  std::size_t layers = 4;
  std::size_t heads = 4;
  std::size_t width = 128;  ///< a multiple of `heads`
  bool tied = true;         ///< the output layer uses the token embedding
};

/// The part of the model that one device computes. The whole model unless it is a pipeline.
struct Stage {
  std::size_t first_layer = 0;
  std::size_t end_layer = 0;  ///< one past the last layer
  bool embeds = true;         ///< has the embedding of the input
  bool predicts = true;       ///< has the last norm and the output layer
};

/// The stage number `index` of `count`: each has an equal share of the layers.
[[nodiscard]] Stage stage_of(const ModelShape& shape, std::size_t index, std::size_t count);

/// How a parameter is initialised.
enum class Initial : unsigned char { Normal, Zero, One };

struct Parameter {
  std::string name;      ///< unique in the model, the same in every stage: "layer3.mlp.in.weight"
  std::size_t elements;  ///< floats
  Initial initial;
  float deviation = 0;  ///< standard deviation, for Normal
  bool decays = false;  ///< whether weight decay applies: to matrices alone
};

/// The positions of a layer's parameters in the list of its stage.
struct LayerParameters {
  std::size_t norm1_gain, norm1_bias, qkv, qkv_bias, projection, projection_bias;
  std::size_t norm2_gain, norm2_bias, mlp_in, mlp_in_bias, mlp_out, mlp_out_bias;
};

/// The parameters of a stage, in the order of the forward pass. The backward pass computes their gradients from the
/// last to the first.
class ParameterList {
 public:
  ParameterList(const ModelShape& shape, const Stage& stage);

  [[nodiscard]] const std::vector<Parameter>& all() const { return all_; }
  [[nodiscard]] std::size_t size() const { return all_.size(); }
  [[nodiscard]] const Parameter& operator[](std::size_t i) const { return all_[i]; }
  /// Floats of all parameters together.
  [[nodiscard]] std::size_t elements() const;

  // Positions in all(). Only those that the stage has are valid.
  std::size_t token_table = 0;
  std::size_t position_table = 0;
  std::vector<LayerParameters> layers;  ///< layers[0] is the first layer of the stage
  std::size_t last_gain = 0;
  std::size_t last_bias = 0;
  std::size_t output = 0;  ///< equal to token_table if the model is tied

 private:
  std::size_t add(std::string name, std::size_t elements, Initial initial, float deviation = 0);

  std::vector<Parameter> all_;
};

/// The initial values of a parameter. They depend on nothing but the arguments, so every rank computes the same ones.
[[nodiscard]] std::vector<float> initial_values(const Parameter& parameter, std::size_t seed);

}  // namespace train
