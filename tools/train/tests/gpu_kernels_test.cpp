// On a GPU: each kernel, cuBLASLt's products in all forms, and a whole step, against the host kernels. Skipped without
// a GPU.

#include <cuda/cuda_backend.hpp>
#include <engine/host_backend.hpp>
#include <kernel_cases.hpp>
#include <model_run.hpp>
#include <require.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/servers/cuda/device/cuda_devices.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using Clock = std::chrono::steady_clock;
using train::Precision;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Products by cuBLASLt beside those by the plain kernel. Returns false if there is no cuBLASLt.
[[nodiscard]] bool check_products(const cox::CudaClient& client, Precision precision) {
  const bool bfloat16 = precision == Precision::Bfloat16;
  const train::Device<train::CudaBackend> device(client, precision);
  train::MatrixProducts products(client, precision);
  std::string why_not;
  if (!products.usable(why_not)) {
    std::printf("cuBLASLt is not used: %s\n", why_not.c_str());
    return false;
  }
  std::size_t by_library = 0;
  std::size_t refused = 0;
  train::for_each_kernel_case(true, [&](train::KernelCase& given) {
    const bool to_float = given.id == train::KernelId::MatrixProductFloat;
    if (given.id != train::KernelId::MatrixProduct && !to_float) return;
    if (bfloat16) round_inputs(given);
    const auto expected = run_case(device, given);
    const auto number = [&](std::size_t i) -> std::size_t { return std::get<std::uint32_t>(given.scalars[i]); };
    const train::Product shape{.m = number(0),
                               .n = number(1),
                               .k = number(2),
                               .a_transposed = number(3) != 0,
                               .b_transposed = number(4) != 0,
                               .accumulate = number(5) != 0,
                               .float_result = to_float,
                               .batch = number(6)};
    std::vector<cox::Handle> memory;
    for (std::size_t i = 0; i < 3; ++i) {
      if (bfloat16 && (i > 0 || !to_float)) {
        std::vector<std::uint16_t> rounded;
        for (const float value : given.buffers[i].values) rounded.push_back(train::to_bfloat16(value));
        memory.push_back(client.create(cox::Bytes::from_vector(std::move(rounded))));
      } else {
        memory.push_back(client.create(cox::Bytes::copy_of(given.buffers[i].values)));
      }
    }
    const auto multiply = [&] {
      return products.multiply(client, memory[0], memory[1], memory[2], nullptr, shape,
                               std::source_location::current());
    };
    if (!multiply()) {
      ++refused;
      return;
    }
    ++by_library;
    auto got = given.buffers;
    const cox::Bytes bytes = client.read_one(memory[0]);
    if (bfloat16 && !to_float) {
      got[0].values.clear();
      for (const std::uint16_t bits : bytes.to_vector<std::uint16_t>())
        got[0].values.push_back(train::from_bfloat16(bits));
    } else {
      got[0].values = bytes.to_vector<float>();
    }
    // cuBLASLt may round a product to bf16 before it adds it to bf16 contents. The engine accumulates in fp32 alone.
    compare(given, got, expected, bfloat16, shape.accumulate && !to_float);
  });
  std::printf("%s: %zu products by cuBLASLt agree with the plain kernel, %zu were refused\n",
              bfloat16 ? "bf16" : "fp32", by_library, refused);
  require(by_library > 0, "cuBLASLt refused every product");
  return true;
}

void check_model(const cox::CudaClient& client, const cox::HostClient& host, const train::ModelShape& shape,
                 std::size_t samples, const std::string& name) {
  const train::ParameterList list(shape, train::stage_of(shape, 0, 1));
  const auto expected = run_model(train::Device<train::HostBackend>(host), shape, samples);
  const auto got = [&](Precision precision) {
    return run_model(train::Device<train::CudaBackend>(client, precision), shape, samples, &expected);
  };
  compare(got(Precision::Float32), expected, list, 1e-4, "fp32, " + name);
  compare(got(Precision::Bfloat16), expected, list, 0.04, "bf16, " + name);
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // each part is seen as it ends, also in a file
  if (cox::enumerate_cuda_devices().empty()) {
    std::printf("skipped: %s\n", cox::why_no_cuda().c_str());
    return 0;
  }
  bool all = true;
  {
    const cox::CudaClient client = cox::CudaClient::load({cox::cuda_device_type, 0});
    const cox::HostClient host_client = cox::HostClient::load({cox::host_device_type, 0});
    const train::Device<train::HostBackend> host(host_client);
    for (const Precision precision : {Precision::Float32, Precision::Bfloat16}) {
      const auto begin = Clock::now();
      const std::size_t count = check_kernels(train::Device<train::CudaBackend>(client, precision), host, true);
      std::printf("%s: %zu launches agree, %.1f s\n", precision == Precision::Bfloat16 ? "bf16" : "fp32", count,
                  seconds_since(begin));
      all = check_products(client, precision) && all;
    }
    check_model(client, host_client, {.vocabulary = 40, .context = 16, .layers = 2, .heads = 2, .width = 32}, 2,
                "tied");
    check_model(client, host_client,
                {.vocabulary = 11, .context = 5, .layers = 1, .heads = 3, .width = 9, .tied = false}, 2,
                "odd sizes, untied");
    check_model(client, host_client, {.vocabulary = 77, .context = 128, .layers = 2, .heads = 4, .width = 256}, 4,
                "larger");
  }
  cox::shutdown_all();
  // Printed last: a failure ends the test before, so that it does not count as skipped.
  std::puts(all ? "ok" : "all but cuBLASLt's products agree; for these skipped: needs cuBLASLt");
  return 0;
}
