// expect-exit: 0
// The process ends at a random moment of its work with GPUs, with or without a shutdown, from any thread, with handles,
// futures and kernels that are static or not. The argument is the seed.

#if COX_GPU_TESTS

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

std::vector<cox::Handle> static_handles;
std::optional<cox::Future<std::vector<cox::Bytes>>> static_future;
std::optional<cox::CudaClient> static_client;
std::vector<cox::Bytes> static_bytes;

void work(const cox::CudaClient& client, std::mt19937& random) {
  static const cox::CudaKernel kernel = cox::CudaKernel::from_source("increment", cox::CubeDim::of_1d(128), R"(
    extern "C" __global__ void increment(unsigned* data) { data[blockIdx.x * 128 + threadIdx.x] += 1; })");
  std::vector<cox::Handle> handles;
  const auto operations = random() % 200;
  for (unsigned i = 0; i < operations; ++i) {
    switch (random() % 8) {
      case 0: handles.push_back(client.create(cox::Bytes::zeroed(1024 + random() % 3'000'000))); break;
      case 1: static_handles.push_back(client.empty(4096)); break;
      case 2:
        if (!handles.empty()) static_future = client.read_async({handles.back()});
        break;
      case 3:
        if (!handles.empty()) static_bytes.push_back(client.read_one(handles.front()));
        break;
      default:
        if (!handles.empty())
          client.launch(kernel, cox::CubeCount::of_1d(2), cox::KernelArguments().with_buffer(handles.back()));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned seed = argc > 1 ? static_cast<unsigned>(std::stoul(argv[1])) : std::random_device()();
  const auto devices = cox::enumerate_cuda_devices();
  if (devices.empty()) {
    std::fprintf(stderr, "skipped: needs 1 GPU. %s\n", cox::why_no_cuda().c_str());
    return 0;
  }
  std::fprintf(stderr, "seed %u\n", seed);
  std::mt19937 random(seed);
  for (unsigned i = 0; i < 1 + random() % 3; ++i) {
    const cox::CudaClient client = cox::CudaClient::load(devices[random() % devices.size()]);
    if (random() % 2 == 0) static_client = client;
    if (random() % 3 == 0) {
      std::mt19937 own(static_cast<unsigned>(random()));
      std::thread([client, own]() mutable { work(client, own); }).join();
    } else {
      work(client, random);
    }
  }
  switch (random() % 5) {
    case 0: static_cast<void>(cox::shutdown_all()); break;
    case 1: static_cast<void>(cox::shutdown(devices[0])); break;
    case 2: std::exit(0);
    case 3: std::thread([] { std::exit(0); }).join(); break;
    default: break;
  }
  return 0;
}

#else
int main() { return 0; }
#endif
