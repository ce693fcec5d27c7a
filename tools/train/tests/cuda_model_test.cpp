// A whole step of a model by the CUDA kernels, run on the CPU, against the same step by the host kernels.

#include <emulated_backend.hpp>

// The engine's templates, for the emulated device.
#include <engine/optimizer.cpp>   // NOLINT(bugprone-suspicious-include)
#include <model/activations.cpp>  // NOLINT(bugprone-suspicious-include)
#include <model/attention.cpp>    // NOLINT(bugprone-suspicious-include)
#include <model/model.cpp>        // NOLINT(bugprone-suspicious-include)

#include <model_run.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>

namespace {

void check(const cox::HostClient& client, const train::ModelShape& shape, std::size_t samples, const char* name) {
  const train::ParameterList list(shape, train::stage_of(shape, 0, 1));
  const auto expected = run_model(train::Device<train::HostBackend>(client), shape, samples);
  const auto got = [&](train::Precision precision) {
    return run_model(train::Device<train::EmulatedBackend>(client, precision), shape, samples, &expected);
  };
  compare(got(train::Precision::Float32), expected, list, 2e-5, std::string("fp32, ") + name);
  compare(got(train::Precision::Bfloat16), expected, list, 0.03, std::string("bf16, ") + name);
}

}  // namespace

int main() {
  const cox::HostClient client = cox::HostClient::load({cox::host_device_type, 0});
  check(client, {.vocabulary = 40, .context = 16, .layers = 2, .heads = 2, .width = 32}, 2, "tied");
  check(client, {.vocabulary = 11, .context = 5, .layers = 1, .heads = 3, .width = 9, .tied = false}, 2,
        "odd sizes, untied");
  cox::shutdown_all();
  return 0;
}
