// expect-exit: 86
// A kernel traps on one GPU while the others wait for it in collectives, by NCCL and in each other's memory. Every rank
// is told why, the devices can be shut down, and the process ends with the code that says that its GPUs are gone.

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

using Clock = std::chrono::system_clock;

constexpr const char* source = R"(
extern "C" __global__ void culprit(unsigned* data) { if (threadIdx.x == 0) asm volatile("trap;"); }
)";

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what.c_str());
  std::_Exit(1);
}

}  // namespace

int main(int argc, char**) {
  const auto devices = cox::enumerate_cuda_devices();
  if (devices.size() < 2) {
    std::fprintf(stderr, "skipped: needs 2 GPUs. %s\n", cox::why_no_cuda().c_str());
    return cox::gpu_fault_exit_code;
  }
  const std::size_t large = std::size_t{64} << 20U;  // NCCL's
  const std::size_t small = std::size_t{64} << 10U;
  const std::size_t size = argc > 1 ? small : large;
  const cox::CudaKernel culprit = cox::CudaKernel::from_source("culprit", cox::CubeDim::of_1d(32), source);
  std::vector<cox::CudaClient> clients;
  std::vector<cox::Handle> data;
  for (const cox::DeviceId device : devices) {
    clients.push_back(cox::CudaClient::load(device));
    culprit.prepare(device);
    data.push_back(clients.back().create(cox::Bytes::zeroed(size)));
  }
  const auto all_reduce = [&](std::size_t rank) {
    clients[rank].all_reduce(data[rank], data[rank], cox::ElementType::F32, devices);
  };
  for (std::size_t rank = 0; rank < clients.size(); ++rank) all_reduce(rank);
  for (std::size_t rank = 0; rank < clients.size(); ++rank) {
    clients[rank].sync_collective();
    clients[rank].sync().get();
  }

  std::atomic<std::size_t> told{0};
  std::atomic<Clock::rep> last_told{0};
  clients[0].launch(culprit, cox::CubeCount::single(), cox::KernelArguments().with_buffer(data[0]));
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < clients.size(); ++rank)
    ranks.emplace_back([&, rank] {
      try {
        for (int i = 0; i < 10; ++i) all_reduce(rank);
        clients[rank].sync_collective();
        clients[rank].sync().get();
      } catch (const cox::ServerError& error) {
        require(error.kind() == cox::ServerError::Kind::Unhealthy, std::string("unhealthy: ") + error.what());
        last_told = Clock::now().time_since_epoch().count();
        ++told;
      }
    });
  for (std::thread& rank : ranks) rank.join();
  require(told == clients.size(), "every rank is told: " + std::to_string(told));
  const auto fault = cox::gpu_fault();
  require(fault != nullptr, "there is a fault");
  const auto late = Clock::time_point(Clock::duration(last_told.load())) - fault->when;
  std::printf("%zu ranks were told, the last %.3f ms after the driver showed it\n", told.load(),
              std::chrono::duration<double, std::milli>(late).count());
  require(late < std::chrono::milliseconds(100), "everybody is told within 100 ms");
  const auto begin = std::chrono::steady_clock::now();
  require(cox::shutdown_all() == cox::ShutdownOutcome::Drained, "the devices can be shut down");
  std::printf("shut down in %.3f s\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return cox::exit_code(0);
}

#else
int main() { return 86; }
#endif
