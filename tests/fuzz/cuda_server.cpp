#include <coxswain/tests/fuzz/servers.hpp>

#include <stdexcept>

#if COX_CUDA_TESTS
#include <coxswain/tests/fuzz/run_programs.hpp>

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/tests/stand_ins/cuda_driver.hpp>
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
  return run_programs<test::CudaBackend>(options, [fake] { return test::undestroyed_objects(*fake); });
}
#else
int run_on_cuda(const Options&) { throw std::runtime_error("this build has no CUDA server"); }
#endif

}  // namespace cox::fuzz
