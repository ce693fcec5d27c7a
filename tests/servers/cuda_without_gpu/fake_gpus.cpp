#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/tests/fake_nccl/fake_nccl.hpp>
#include <coxswain/tests/stand_ins/cuda_driver.hpp>
#include <coxswain/tests/stand_ins/kernel_functions.hpp>
#include <coxswain/tests/stand_ins/peer_kernels.hpp>

#include <dlfcn.h>

#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace cox::test {
namespace {

CudaKernel kernel_of(const char* name, std::vector<KernelParameter> parameters, CudaKernelOptions options = {}) {
  const std::string text = ".version 8.0";  // of code that nobody looks at
  options.parameters = std::move(parameters);
  return CudaKernel::from_image(name, CubeDim::single(), std::as_bytes(std::span(text)), std::move(options));
}

CudaKernel append_kernel(CudaKernelOptions options = {}) {
  return kernel_of("append", {KernelParameter::buffer(), KernelParameter::scalar(4)}, std::move(options));
}

}  // namespace

FakeCuda& FakeGpus::find() {
  set_settings({{"cuda.driver", std::string(COX_FAKE_CUDA)},
                {"compilation.nvrtc", std::string(COX_FAKE_NVRTC)},
                {"compilation.cache", false},
                {"collectives.nccl", std::string(COX_FAKE_NCCL)}});
  FakeCuda* const found = find_cuda_stand_in();
  if (found == nullptr) throw std::runtime_error(detail::find_driver().error);
  return *found;
}

FakeGpus::FakeGpus() : fake(find()) {
  const std::lock_guard lock(fake.mutex);
  fake.calls_until_failure = -1;
  fake.failed = nullptr;
  fake.misuse.clear();
  fake.by_chance = true;
  fake.largest_piece = ~std::size_t{0};
  fake.devices = 4;
  fake.has_peer_access = true;
  fake.has_nvlink = false;
  fake.launches = fake.graph_launches = fake.calls = 0;
  fake.attributes.clear();
  fake.kernels["append"] = {{8, 4}, [this] {
                              return [this](const FakeCuda::Run& run) {
                                appended_.push_back(argument<std::uint32_t>(run, 1));
                                return true;
                              };
                            }};
  fake.kernels["hold"] = {{8}, [this] { return [this](const FakeCuda::Run&) { return released_.load(); }; }};
  prepare_peer_kernels(fake);
}

FakeGpus::~FakeGpus() {
  release();
  shutdown_all();
  const std::lock_guard lock(fake.mutex);
  fake.calls_until_fault = -1;
  if (std::exchange(fake.faulted, false)) {  // nothing is given back then
    fake.live = 0;
    detail::forget_gpu_fault();
  }
}

namespace {

void launch_append(const CudaClient& client, CubeCount cubes, const Handle& buffer, std::uint32_t number) {
  static const CudaKernel kernel = append_kernel();
  client.launch(kernel, std::move(cubes), KernelArguments().with_buffer(buffer).with_scalar(number));
}

}  // namespace

void FakeGpus::append(const CudaClient& client, const Handle& buffer, std::uint32_t number, CudaKernelOptions options) {
  client.launch(append_kernel(std::move(options)), CubeCount::of_1d(8),
                KernelArguments().with_buffer(buffer).with_scalar(number));
}

void FakeGpus::append(const CudaClient& client, const Handle& buffer, std::uint32_t number) {
  launch_append(client, CubeCount::single(), buffer, number);
}

void FakeGpus::append_dynamic(const CudaClient& client, const Handle& cubes, const Handle& buffer,
                              std::uint32_t number) {
  launch_append(client, CubeCount::dynamic(cubes), buffer, number);
}

void FakeGpus::launch(const CudaClient& client, const char* name, CubeCount cubes, const Handle& buffer) {
  client.launch(kernel_of(name, {KernelParameter::buffer()}), std::move(cubes), KernelArguments().with_buffer(buffer));
}

void FakeGpus::run_in_order() {
  const std::lock_guard lock(fake.mutex);
  fake.by_chance = false;
}

std::vector<std::uint32_t> FakeGpus::appended() {
  const std::lock_guard lock(fake.mutex);
  return appended_;
}

int FakeGpus::live() {
  const std::lock_guard lock(fake.mutex);
  return fake.live;
}

std::string FakeGpus::undestroyed_objects() { return test::undestroyed_objects(fake); }

void FakeGpus::fail_after(int calls) {
  const std::lock_guard lock(fake.mutex);
  fake.calls_until_failure = calls;
  fake.failed = nullptr;
}

void FakeGpus::fault_after(int calls) {
  const std::lock_guard lock(fake.mutex);
  fake.calls_until_fault = calls;
}

bool FakeGpus::faulted() {
  const std::lock_guard lock(fake.mutex);
  return fake.faulted;
}

bool FakeGpus::has_failed() {
  const std::lock_guard lock(fake.mutex);
  return fake.failed != nullptr;
}

std::size_t FakeGpus::nccl_creations() {
  void* const nccl = dlopen(COX_FAKE_NCCL, RTLD_NOW | RTLD_NOLOAD);
  if (nccl == nullptr) return 0;
  FakeNccl& fake = *reinterpret_cast<FakeNccl* (*)()>(dlsym(nccl, "cox_fake_nccl"))();
  dlclose(nccl);
  const std::lock_guard lock(fake.mutex);
  return fake.count(FakeNccl::Kind::Create);
}

const char* FakeGpus::stop_failing() {
  const std::lock_guard lock(fake.mutex);
  fake.calls_until_failure = -1;
  return fake.failed;
}

}  // namespace cox::test
