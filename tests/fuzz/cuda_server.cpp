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
  return run_programs<test::CudaBackend>(
      options, {.plan_fault =
                    [fake](std::uint64_t seed) {
                      constexpr unsigned most_calls = 3000;  // of the driver, before the fault
                      const std::lock_guard lock(fake->mutex);
                      fake->calls_until_fault = static_cast<int>(std::mt19937_64(seed)() % most_calls);
                    },
                .has_faulted =
                    [fake] {
                      const std::lock_guard lock(fake->mutex);
                      return fake->faulted;
                    },
                .mend =
                    [fake] {
                      const std::lock_guard lock(fake->mutex);
                      fake->calls_until_fault = -1;
                      if (!std::exchange(fake->faulted, false)) return false;
                      fake->live = 0;
                      cox::detail::forget_gpu_fault();
                      return true;
                    },
                .undestroyed_objects = [fake] { return test::undestroyed_objects(*fake); }});
}
#else
int run_on_cuda(const Options&) { throw std::runtime_error("this build has no CUDA server"); }
#endif

}  // namespace cox::fuzz
