// expect-exit: 86
// A kernel traps while NCCL creates the communicators of the first collective, so many milliseconds (the argument,
// default 100) after the call. Every rank gets an error that names the fault, and the process exits with
// gpu_fault_exit_code.

#if COX_GPU_TESTS

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/servers/cuda/driver/gpu_fault.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr const char* source = R"(
extern "C" __global__ void culprit(unsigned* data) { if (threadIdx.x == 0) asm volatile("trap;"); }
)";

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what.c_str());
  std::_Exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const auto devices = cox::enumerate_cuda_devices();
  if (devices.size() < 2) {
    std::fprintf(stderr, "skipped: needs 2 GPUs. %s\n", cox::why_no_cuda().c_str());
    return cox::gpu_fault_exit_code;
  }
  const std::chrono::milliseconds after(argc > 1 ? std::atoi(argv[1]) : 100);
  const std::size_t size = std::size_t{64} << 20U;  // large enough that NCCL reduces it, not a kernel of the library
  const cox::CudaKernel culprit = cox::CudaKernel::from_source("culprit", cox::CubeDim::of_1d(32), source);
  std::vector<cox::CudaClient> clients;
  std::vector<cox::Handle> data;
  for (const cox::DeviceId device : devices) {
    clients.push_back(cox::CudaClient::load(device));
    culprit.prepare(device);
    data.push_back(clients.back().create(cox::Bytes::zeroed(size)));
    clients.back().sync().get();
  }
  cox::CudaClient failing = clients.back();
  failing.set_stream(cox::StreamId::allocate());
  const cox::Handle unused = failing.empty(4);

  std::atomic<std::size_t> completed{0};
  std::atomic<std::size_t> failed_ranks{0};
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < clients.size(); ++rank)
    ranks.emplace_back([&, rank] {
      try {
        for (;;) {
          clients[rank].all_reduce(data[rank], data[rank], cox::ElementType::F32, devices);
          clients[rank].sync_collective();
          clients[rank].sync().get();
          ++completed;
        }
      } catch (const cox::ServerError& error) {
        require(error.kind() == cox::ServerError::Kind::Unhealthy, std::string("unhealthy: ") + error.what());
        ++failed_ranks;
      }
    });
  while (std::chrono::steady_clock::now() < begin + after) std::this_thread::yield();
  if (argc < 2) require(completed == 0, "the communicators are not created yet");
  failing.launch(culprit, cox::CubeCount::single(), cox::KernelArguments().with_buffer(unused));
  for (std::thread& rank : ranks) rank.join();
  require(failed_ranks == clients.size(), "every rank has failed");
  require(cox::gpu_fault() != nullptr, "there is a fault");
  require(cox::shutdown_all() == cox::ShutdownOutcome::Drained, "the devices can be shut down");
  return cox::exit_code(0);
}

#else
int main() { return 86; }
#endif
