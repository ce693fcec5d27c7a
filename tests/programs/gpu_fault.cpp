// expect-exit: 86
// A kernel traps on one GPU. Everybody who waits, on every GPU, is told why; host devices go on; the devices can be
// shut down, and the process ends with the code that says that its GPUs are gone.

#if COX_GPU_TESTS

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/servers/cuda/driver/gpu_fault.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <algorithm>
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
extern "C" __global__ void harmless(unsigned* data) { data[threadIdx.x] += 1; }
extern "C" __global__ void culprit(unsigned* data) { if (threadIdx.x == 0) asm volatile("trap;"); }
extern "C" __global__ void endless(unsigned* data) { while (*(volatile unsigned*)data != 12345) {} }
)";

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what.c_str());
  std::_Exit(1);
}

/// What the call was answered with, which must be the fault.
template <class F>
std::string fault_of(F&& call) {
  try {
    call();
  } catch (const cox::ServerError& error) {
    require(error.kind() == cox::ServerError::Kind::Unhealthy, std::string("unhealthy: ") + error.what());
    require(!error.errors().empty(), "the fault is among the errors");
    return error.what();
  } catch (const std::exception& error) {
    require(false, std::string("the fault is told, not: ") + error.what());
  }
  return {};
}

}  // namespace

int main() {
  const auto devices = cox::enumerate_cuda_devices();
  if (devices.empty()) {
    std::fprintf(stderr, "skipped: needs 1 GPU. %s\n", cox::why_no_cuda().c_str());
    return cox::gpu_fault_exit_code;
  }
  const auto kernel = [](const char* name) {
    return cox::CudaKernel::from_source(name, cox::CubeDim::of_1d(32), source);
  };
  const cox::HostClient host = cox::HostClient::load({.type = cox::host_device_type, .index = 0});
  const cox::CudaKernel harmless = kernel("harmless");
  const cox::CudaKernel culprit = kernel("culprit");
  const cox::CudaKernel endless = kernel("endless");
  std::vector<cox::CudaClient> clients;
  for (const cox::DeviceId device : devices) {
    clients.push_back(cox::CudaClient::load(device));
    // Loading a kernel waits for those that run.
    for (const cox::CudaKernel& loaded : {harmless, culprit, endless}) loaded.prepare(device);
  }

  std::atomic<int> told{0};
  std::atomic<Clock::rep> last_told{0};
  std::atomic<int> waiting{0};
  std::vector<std::thread> waiters;
  int expected = 0;
  for (const cox::CudaClient& client : clients) {
    for (int i = 0; i < 4; ++i) {
      ++expected;
      waiters.emplace_back([&, client, i] {
        const cox::Handle data = client.create(cox::Bytes::zeroed(4096));
        client.launch(harmless, cox::CubeCount::single(), cox::KernelArguments().with_buffer(data));
        client.sync().get();
        client.launch(endless, cox::CubeCount::single(), cox::KernelArguments().with_buffer(data));
        ++waiting;
        const std::string fault = fault_of([&] {
          if (i % 2 == 0) client.sync().get();
          static_cast<void>(client.read_one(data));
        });
        require(fault.find("CUDA_ERROR") != std::string::npos, "the cause is named: " + fault);
        last_told = Clock::now().time_since_epoch().count();
        ++told;
      });
    }
  }
  while (waiting < expected) std::this_thread::yield();
  const cox::Handle data = clients[0].create(cox::Bytes::zeroed(4096));
  clients[0].launch(culprit, cox::CubeCount::single(), cox::KernelArguments().with_buffer(data));
  const std::string first = fault_of([&] { clients[0].sync().get(); });
  for (std::thread& waiter : waiters) waiter.join();
  const auto fault = cox::gpu_fault();
  require(fault != nullptr, "there is a fault");
  const auto is_culprit = [](const auto& suspect) { return suspect.operation.find("culprit") != std::string::npos; };
  require(std::ranges::any_of(fault->suspects, is_culprit), "the culprit is among the suspects: " + fault->to_string());
  const auto late = Clock::time_point(Clock::duration(last_told.load())) - fault->when;
  std::printf("%s\n%d waiters on %zu GPUs were told, the last after %.3f ms\n", first.c_str(), told.load(),
              clients.size(), std::chrono::duration<double, std::milli>(late).count());
  require(late < std::chrono::milliseconds(100), "everybody is told within 100 ms");

  for (const cox::CudaClient& client : clients) {
    const auto begin = std::chrono::steady_clock::now();
    static_cast<void>(fault_of([&] { static_cast<void>(client.read_one(client.create(cox::Bytes::zeroed(100)))); }));
    static_cast<void>(fault_of([&] { client.flush(); }));
    require(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(100), "later calls fail at once");
  }
  const std::vector<std::uint32_t> values{1, 2, 3};
  require(host.read_one(host.create(cox::Bytes::copy_of(values))).to_vector<std::uint32_t>() == values,
          "host devices go on");
  require(cox::shutdown_all() == cox::ShutdownOutcome::Drained, "the devices can be shut down");
  return cox::exit_code(0);
}

#else
int main() { return 86; }
#endif
