// Finite differences: the gradient of every parameter, of every kind, against the change of the loss.

#include <require.hpp>

#include <data/random.hpp>
#include <model/model.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using Model = train::Model<train::HostBackend>;

constexpr std::size_t samples = 2;

double loss_of(Model& model, const cox::HostClient& client) {
  model.forward(0, 0);
  model.loss(0, 0, 1.0F / static_cast<float>(samples * model.shape().context));
  double sum = 0;
  const auto losses = client.read_one(model.slot(0).losses).to_vector<float>();
  for (const float loss : losses) sum += static_cast<double>(loss);
  return sum / static_cast<double>(losses.size());
}

// Compares the derivative in a random direction of each parameter tensor, and of some single elements.
void check(bool tied) {
  const cox::HostClient client = cox::HostClient::load({cox::host_device_type, 0});
  const train::ModelShape shape{.vocabulary = 7, .context = 5, .layers = 2, .heads = 2, .width = 8, .tied = tied};
  const train::Device<train::HostBackend> device(client);
  Model model(device, shape, train::stage_of(shape, 0, 1), samples, 1, 1);
  model.allocate_gradients();
  train::Random random(tied ? 1 : 2, "gradients_test");

  // Larger values than for training, so that no part of the model is nearly linear.
  std::vector<std::vector<float>> values;
  for (std::size_t i = 0; i < model.list().size(); ++i) {
    const bool gain = model.list()[i].initial == train::Initial::One;
    values.emplace_back(model.list()[i].elements);
    for (float& value : values.back()) value = 0.4F * random.normal() + (gain ? 1.0F : 0.0F);
    model.set_parameter(i, cox::Bytes::copy_of(values[i]));
  }
  train::TokenBatch text;
  for (std::size_t i = 0; i < samples * shape.context; ++i) {
    text.tokens.push_back(static_cast<std::int32_t>(random.next() % shape.vocabulary));
    text.targets.push_back(static_cast<std::int32_t>(random.next() % shape.vocabulary));
  }
  model.set_batch(0, text);
  static_cast<void>(loss_of(model, client));
  std::vector<int> ready(model.list().size());
  model.backward(0, 0, false, [&](std::size_t i) { ++ready[i]; });

  const float step = 0.01F;
  for (std::size_t i = 0; i < model.list().size(); ++i) {
    const std::string& name = model.list()[i].name;
    require(ready[i] == 1, (name + " was not announced exactly once").c_str());
    const auto gradient = client.read_one(model.gradients()[i]).to_vector<float>();
    const auto compare = [&](const std::vector<float>& direction, const char* what) {
      double expected = 0;
      for (std::size_t e = 0; e < direction.size(); ++e)
        expected += static_cast<double>(gradient[e]) * static_cast<double>(direction[e]);
      const auto loss_at = [&](float distance) {
        std::vector<float> moved = values[i];
        for (std::size_t e = 0; e < moved.size(); ++e) moved[e] += distance * direction[e];
        model.set_parameter(i, cox::Bytes::from_vector(std::move(moved)));
        return loss_of(model, client);
      };
      const double measured = (loss_at(step) - loss_at(-step)) / (2.0 * static_cast<double>(step));
      model.set_parameter(i, cox::Bytes::copy_of(values[i]));
      std::printf("%-24s %-10s gradient %10.6f, difference %10.6f\n", name.c_str(), what, expected, measured);
      require(std::abs(measured - expected) <= 2e-4 + 0.01 * std::abs(expected), name.c_str());
    };
    std::vector<float> direction(gradient.size());
    double length = 0;
    for (float& d : direction) {
      d = random.normal();
      length += static_cast<double>(d) * static_cast<double>(d);
    }
    for (float& d : direction) d /= static_cast<float>(std::sqrt(length));
    compare(direction, "direction");
    for (int element = 0; element < 3; ++element) {
      std::vector<float> unit(gradient.size());
      unit[random.next() % unit.size()] = 1.0F;
      compare(unit, "element");
    }
  }
}

}  // namespace

int main() {
  check(true);
  check(false);
  cox::shutdown_all();
  std::puts("ok");
  return 0;
}
