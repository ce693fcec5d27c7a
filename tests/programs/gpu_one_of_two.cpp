// T15: every thread of the library makes calls for its own device. A program that opens the second GPU alone, and has
// all kinds of threads work for it, leaves the first one's context as it was: not made.

#if COX_GPU_TESTS

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#include <vector>

namespace {

constexpr const char* source = R"(
extern "C" __global__ void add(unsigned* data, unsigned long long summand) { data[threadIdx.x] += summand; }
)";

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what.c_str());
  std::_Exit(1);
}

bool has_context(int device) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  using GetState = int (*)(int, unsigned*, int*);
  const auto get_state = reinterpret_cast<GetState>(dlsym(driver, "cuDevicePrimaryCtxGetState"));
  unsigned flags = 0;
  int active = 0;
  require(get_state != nullptr && get_state(device, &flags, &active) == 0, "the driver tells of contexts");
  return active != 0;
}

}  // namespace

int main() {
  const auto devices = cox::enumerate_cuda_devices();
  if (devices.size() < 2) {
    std::fprintf(stderr, "skipped: needs 2 GPUs. %s\n", cox::why_no_cuda().c_str());
    return 0;
  }
  {
    const auto client = cox::CudaClient::load(devices[1]);
    const auto add = cox::CudaKernel::from_source("add", cox::CubeDim::of_1d(32), source);
    const std::vector<std::uint32_t> large(std::size_t{4} << 20U, 1);
    // The threads that copy, a kernel compiled on the client's, a graph; results by token and by waiting.
    const cox::Handle data = client.create(cox::Bytes::copy_of(large));
    const auto arguments = [&] { return cox::KernelArguments().with_buffer(data).with_scalar(std::uint64_t{2}); };
    client.launch(add, cox::CubeCount::single(), arguments());
    client.graph_prepare();
    client.graph_start_capture();
    client.launch(add, cox::CubeCount::single(), arguments());
    auto graph = client.graph_stop_capture();
    graph.replay();
    std::promise<std::uint32_t> read;
    client.read_async(std::vector<cox::Handle>{data})
        .async_get([&](std::exception_ptr error, std::vector<cox::Bytes> bytes) {
          if (error != nullptr) return read.set_exception(error);
          read.set_value(bytes[0].to_vector<std::uint32_t>()[0]);
        });
    require(read.get_future().get() == 5, "the kernels have run");
    client.sync().get();
    client.memory_cleanup();
    require(has_context(devices[1].index), "the second GPU is in use");
    require(!has_context(devices[0].index), "nothing was done on the first GPU");
  }
  cox::shutdown_all();
  require(!has_context(devices[0].index), "nothing was done on the first GPU when the second was closed");
}

#else

#include <cstdio>

int main() { std::fprintf(stderr, "skipped: needs 2 GPUs, and a build with CUDA\n"); }

#endif
