#include <coxswain/tests/fuzz/servers.hpp>

#include <stdexcept>

#if COX_CUDA_TESTS
#include <coxswain/tests/fuzz/run_programs.hpp>

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/tests/stand_ins/cuda_driver.hpp>

#include <cstdint>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#endif

namespace cox::fuzz {

#if COX_CUDA_TESTS
int run_on_cuda(const Options& options) {
  set_settings({{"cuda.driver", std::string(COX_FAKE_CUDA)},
                {"compilation.nvrtc", std::string(COX_FAKE_NVRTC)},
                {"compilation.cache", false},
                {"collectives.nccl", std::string(COX_FAKE_NCCL)}});
  if (const std::string lack = test::CudaBackend::missing_devices(device_count); !lack.empty())
    throw std::runtime_error("needs " + lack);
  test::FakeCuda* const fake = test::find_cuda_stand_in();
  if (fake == nullptr) throw std::runtime_error("the stand-in for the driver was not opened");
  add_slow_kernel(*fake);
  const bool is_of_gpus = options.faults == Options::Faults::Gpus;
  std::string failed;
  Machine machine;
  machine.plan_fault = [fake, is_of_gpus](std::uint64_t seed) {
    constexpr unsigned most_calls = 3000;  // of the driver, before the fault
    const auto calls = static_cast<int>(std::mt19937_64(seed)() % most_calls);
    const std::lock_guard lock(fake->mutex);
    fake->failed = nullptr;
    (is_of_gpus ? fake->calls_until_fault : fake->calls_until_failure) = calls;
  };
  machine.has_faulted = [fake] {
    const std::lock_guard lock(fake->mutex);
    return fake->failed != nullptr;
  };
  machine.mend = [fake, &failed] {
    const std::lock_guard lock(fake->mutex);
    failed = fake->failed != nullptr ? " after " + std::string(fake->failed) + " has failed" : "";
    fake->calls_until_fault = fake->calls_until_failure = -1;
    if (std::exchange(fake->failed, nullptr) == nullptr) return Machine::Fault::None;
    if (!std::exchange(fake->faulted, false)) return Machine::Fault::OfCall;
    fake->live = 0;
    cox::detail::forget_gpu_fault();
    return Machine::Fault::OfGpus;
  };
  machine.undestroyed_objects = [fake, &failed] {
    const std::string left = test::undestroyed_objects(*fake);
    return left.empty() ? left : left + failed;
  };
  return run_programs<test::CudaBackend>(options, machine);
}
#else
int run_on_cuda(const Options&) { throw std::runtime_error("this build has no CUDA server"); }
#endif

}  // namespace cox::fuzz
