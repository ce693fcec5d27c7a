// kept_worker.hpp on all GPUs. Faults: kill, trap, address, assert.

#if COX_GPU_TESTS

#include <coxswain/servers/cuda/driver/gpu_fault.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>
#include <coxswain/tests/programs/kept_worker.hpp>

#include <algorithm>

namespace {

constexpr std::size_t elements = 1 << 20;
constexpr const char* source = R"(
typedef unsigned long long u64;
extern "C" __global__ void fill(u64* data, u64 value, unsigned count) {
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) ((volatile u64*)data)[i] = value;  // one block: slow
}
extern "C" __global__ void fail(u64* data, unsigned kind) {
  if (threadIdx.x != 0) return;
  if (kind == 0) asm volatile("trap;");
  if (kind == 1) *(volatile u64*)0x10 = 1;
  __assertfail("a planned fault", "kept_worker", 1, "fail", 1);
}
)";

cox::CudaKernel kernel(const char* name) {
  return cox::CudaKernel::from_source(name, cox::CubeDim::of_1d(256), source);
}

}  // namespace

int main(int argc, char** argv) {
  const auto found = cox::enumerate_cuda_devices();
  if (found.empty()) {
    std::fprintf(stderr, "skipped: needs 1 GPU. %s\n", cox::why_no_cuda().c_str());
    return 0;
  }
  const cox::CudaKernel fill = kernel("fill");
  const cox::CudaKernel fail = kernel("fail");
  kept_worker::Devices<cox::CudaClient> devices{
      .clients = {},
      .elements = elements,
      .fill =
          [&fill](const cox::CudaClient& client, const cox::Handle& memory, std::uint64_t value) {
            client.launch(fill, cox::CubeCount::single(),
                          cox::KernelArguments()
                              .with_buffer(memory, cox::Access::Overwrite)
                              .with_scalar(value)
                              .with_scalar(static_cast<std::uint32_t>(elements)));
          },
      .end_soon = {}};
  for (const cox::DeviceId device : found) devices.clients.push_back(cox::CudaClient::load(device));
  // The last device fails. Its kernel is loaded now, so that the fault comes when it is launched.
  cox::CudaClient last = devices.clients.back();
  last.set_stream(cox::StreamId::allocate());
  const cox::Handle unused = last.empty(8);
  fail.prepare(last.device_id());
  devices.end_soon = [&](const std::string& fault, const char* file) {
    std::thread([&, fault, file] {
      kept_worker::wait_at_random(std::chrono::milliseconds(60));
      kept_worker::note(file, "fault " + kept_worker::now_in_ms());
      if (fault == "kill") std::raise(SIGKILL);
      const std::uint32_t kind = fault == "trap" ? 0 : fault == "address" ? 1 : 2;
      last.launch(fail, cox::CubeCount::single(), cox::KernelArguments().with_buffer(unused).with_scalar(kind));
    }).detach();
  };
  const int code = cox::exit_code(kept_worker::run_all(devices, argc, argv));
  std::fflush(nullptr);
  std::_Exit(code);  // the thread that fails may still run
}

#else
int main() {}
#endif
