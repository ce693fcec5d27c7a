// A user's kernel, compiled with the user's program, launched by coxswain.

#include <cstdint>
#include <cstdio>
#include <vector>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/servers/cuda/kernel/global_kernel.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>

__global__ void saxpy(float* y, const float* x, float a, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] += a * x[i];
}

int main() {
  const auto devices = cox::enumerate_cuda_devices();
  if (devices.empty()) {
    std::printf("skipped: needs 1 GPU. %s\n", cox::why_no_cuda().c_str());
    return 0;
  }
  constexpr int count = 1000;
  const auto client = cox::CudaClient::load(devices[0]);
  const cox::Handle y = client.create(cox::Bytes::copy_of(std::vector<float>(count, 1.0F)));
  const cox::Handle x = client.create(cox::Bytes::copy_of(std::vector<float>(count, 2.0F)));
  const auto kernel = cox::global_kernel("saxpy", cox::CubeDim::of_1d(256), &saxpy);
  client.launch(kernel, cox::CubeCount::of_1d((count + 255) / 256),
                cox::KernelArguments().with_buffer(y).with_buffer(x).with_scalar(3.0F).with_scalar(count));
  const auto result = client.read_one(y).to_vector<float>();
  for (const float value : result)
    if (value != 7.0F) return 1;
  std::printf("1 + 3 * 2 = %g, %d times\n", static_cast<double>(result[0]), count);
  return cox::shutdown_all() == cox::ShutdownOutcome::Drained ? 0 : 1;
}
