// kept_worker.hpp on two GPUs of the stand-in for the CUDA driver. Faults: kill, gpu.
#include <coxswain/servers/cuda/driver/gpu_fault.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>
#include <coxswain/tests/fake_cuda/fake_cuda.hpp>
#include <coxswain/tests/programs/kept_worker.hpp>
#include <coxswain/tests/stand_ins/cuda_driver.hpp>
#include <coxswain/tests/stand_ins/kept_kernels.hpp>
#include <coxswain/tests/stand_ins/nccl_operations.hpp>
#include <coxswain/tests/stand_ins/peer_kernels.hpp>

#include <mutex>

int main(int argc, char** argv) {
  cox::test::FakeCuda* const fake = cox::test::find_cuda_stand_in();
  if (fake == nullptr) {
    std::fprintf(stderr, "the stand-in for the driver cannot be opened\n");
    return 1;
  }
  {
    const std::lock_guard lock(fake->mutex);
    cox::test::prepare_kept_kernels(*fake);
    cox::test::prepare_nccl_stand_in(*fake);
    cox::test::prepare_peer_kernels(*fake);
  }
  kept_worker::Devices<cox::CudaClient> devices{
      .clients = {},
      .elements = 1 << 12,
      .fill =
          [](const cox::CudaClient& client, const cox::Handle& memory, std::uint64_t value) {
            const std::vector<std::uint64_t> values(memory.size_in_used() / sizeof(value), value);
            client.write(memory, cox::Bytes::copy_of(values));
          },
      .end_soon =
          [fake](const std::string& fault, const char* file) {
            std::thread([fake, fault, file] {
              kept_worker::wait_at_random(std::chrono::milliseconds(20));
              kept_worker::note(file, "fault " + kept_worker::now_in_ms());
              if (fault == "kill") std::raise(SIGKILL);
              const std::lock_guard lock(fake->mutex);
              fake->calls_until_fault = 0;
            }).detach();
          }};
  for (std::uint16_t i = 0; i < 2; ++i) devices.clients.push_back(cox::CudaClient::load({cox::cuda_device_type, i}));
  const int code = cox::exit_code(kept_worker::run_all(devices, argc, argv));
  std::fflush(nullptr);
  std::_Exit(code);  // the thread that fails may still run
}
