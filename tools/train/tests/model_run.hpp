#pragma once

#include <data/random.hpp>
#include <data/text.hpp>
#include <engine/optimizer.hpp>
#include <model/model.hpp>

#include <require.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace train {

/// What a step of a model computes.
struct ModelRun {
  std::vector<float> losses;                  ///< of each row of the last micro-batch
  std::vector<std::vector<float>> gradients;  ///< by parameter, summed over the micro-batches
  std::vector<std::vector<float>> steps;      ///< by parameter, what the update has added to it
};

/// One step with two micro-batches of random tokens, from random parameters, which are the same on every device. The
/// update takes the gradients of `expected`, if given: AdamW divides by their size, so that the signs of gradients that
/// are all rounding, such as those of the keys' biases, would decide.
template <class Backend>
[[nodiscard]] ModelRun run_model(const Device<Backend>& device, const ModelShape& shape, std::size_t samples,
                                 const ModelRun* expected = nullptr) {
  constexpr std::size_t batches = 2;
  const auto& client = device.client();
  Model<Backend> model(device, shape, stage_of(shape, 0, 1), samples, batches, 1);
  model.allocate_gradients();
  Random random(1, "model_run");
  std::vector<Slice> slices;
  std::vector<std::vector<float>> initial;
  for (std::size_t i = 0; i < model.list().size(); ++i) {
    const Parameter& parameter = model.list()[i];
    std::vector<float> values(parameter.elements);
    for (float& value : values) value = 0.1F * random.normal() + (parameter.initial == Initial::One ? 1.0F : 0.0F);
    model.set_parameter(i, cox::Bytes::copy_of(values));
    initial.push_back(std::move(values));
    slices.push_back({model.parameters()[i], model.gradients()[i],
                      model.has_copies() ? std::optional(model.weights()[i]) : std::nullopt, parameter.elements,
                      parameter.decays});
  }
  for (std::size_t batch = 0; batch < batches; ++batch) {
    TokenBatch text;
    for (std::size_t i = 0; i < samples * shape.context; ++i) {
      text.tokens.push_back(static_cast<std::int32_t>(random.next() % shape.vocabulary));
      text.targets.push_back(static_cast<std::int32_t>(random.next() % shape.vocabulary));
    }
    model.set_batch(batch, text);
    model.forward(0, batch);
    model.loss(0, batch, 1.0F / static_cast<float>(samples * shape.context));
    model.backward(0, batch, batch > 0, [](std::size_t) {});
  }
  Optimizer<Backend> optimizer(device, slices, {.warm_up = 1}, std::nullopt);
  optimizer.set_step(2, 10);
  ModelRun result;
  result.losses = client.read_one(model.slot(0).losses).template to_vector<float>();
  for (const cox::Handle& gradient : model.gradients())
    result.gradients.push_back(client.read_one(gradient).template to_vector<float>());
  if (expected != nullptr)
    for (std::size_t i = 0; i < model.gradients().size(); ++i)
      client.write(model.gradients()[i], cox::Bytes::copy_of(expected->gradients[i]));
  optimizer.clip();
  optimizer.update();
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    auto& step = result.steps.emplace_back(client.read_one(model.parameters()[i]).template to_vector<float>());
    for (std::size_t e = 0; e < step.size(); ++e) step[e] -= initial[i][e];
  }
  return result;
}

/// The distance of two tensors, relative to the length of the second one.
[[nodiscard]] inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double length = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    length += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / (length + 1e-30));
}

/// Ends the test if losses or gradients differ by more than `tolerance`, or the steps of the parameters by more than
/// 0.001. Each is a distance of tensors. `got`: updated with the gradients of `expected`.
inline void compare(const ModelRun& got, const ModelRun& expected, const ParameterList& list, double tolerance,
                    const std::string& name) {
  double worst = distance(got.losses, expected.losses);
  require(worst <= tolerance, (name + ": losses").c_str());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const double d = distance(got.gradients[i], expected.gradients[i]);
    if (!(d <= tolerance)) std::fprintf(stderr, "distance %.3g\n", d);
    require(d <= tolerance, (name + ": gradient of " + list[i].name).c_str());
    worst = std::max(worst, d);
  }
  double worst_step = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const double d = distance(got.steps[i], expected.steps[i]);
    if (!(d <= 1e-3)) std::fprintf(stderr, "distance %.3g\n", d);
    require(d <= 1e-3, (name + ": step of " + list[i].name).c_str());
    worst_step = std::max(worst_step, d);
  }
  std::printf("%s: largest distance %.3g of %.3g, of steps %.3g\n", name.c_str(), worst, tolerance, worst_step);
}

}  // namespace train
