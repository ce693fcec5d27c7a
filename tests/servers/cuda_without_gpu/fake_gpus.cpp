#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>

#include <coxswain/runtime/process_settings.hpp>
#include <coxswain/servers/cuda/detail/driver.hpp>
#include <coxswain/servers/cuda/detail/fault_report.hpp>

#include <dlfcn.h>

#include <cstring>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace cox::test {
namespace {

template <class T>
T value_of(void* const* arguments, std::size_t index) {
  T value;
  std::memcpy(&value, arguments[index], sizeof(value));
  return value;
}

/// As the kernels have it.
struct Count {
  std::atomic<std::uint32_t>* counter;
  std::uint32_t value;
};

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
  const std::string file = COX_FAKE_CUDA;
  set_settings({{"cuda.driver", file}, {"collectives.nccl", std::string(COX_FAKE_NCCL)}});
  if (detail::find_driver().driver == nullptr) throw std::runtime_error(detail::find_driver().why_not);
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  return *reinterpret_cast<FakeCuda* (*)()>(::dlsym(library, "cox_fake_cuda"))();
}

FakeGpus::FakeGpus() : fake(find()) {
  const std::lock_guard lock(fake.mutex);
  fake.calls_until_failure = -1;
  fake.failed = nullptr;
  fake.misuse.clear();
  fake.launches = fake.graph_launches = fake.calls = 0;
  fake.attributes.clear();
  fake.kernels["append"] = {{8, 4}, [this] {
                              return [this](void* const* arguments, bool) {
                                appended_.push_back(value_of<std::uint32_t>(arguments, 1));
                                return true;
                              };
                            }};
  fake.kernels["hold"] = {{8}, [this] { return [this](void* const*, bool) { return released_.load(); }; }};
  fake.kernels["cox_one_shot"] = {{8, 8, 8, 16, 4, 4, 8, 8, 16}, [this] { return one_shot(); }};
  for (const char* const name :
       {"cox_two_shot", "cox_two_shot_group", "cox_reduce_scatter", "cox_all_gather", "cox_broadcast"})
    fake.kernels[name] = {{}, [] { return [](void* const*, bool) { return true; }; }};
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

// As the kernel of that name does: it counts, then the ranks meet, and each has the sum.
FakeCuda::Kernel FakeGpus::one_shot() {
  return [this, meeting = std::shared_ptr<Meeting>()](void* const* arguments, bool first_look) mutable {
    if (first_look) {
      const auto count = value_of<Count>(arguments, 8);
      count.counter->store(count.value);
      const auto place = value_of<std::uintptr_t>(arguments, 3);
      auto& found = meetings_[{place, value_of<std::uint32_t>(arguments, 5)}];
      if (found == nullptr) found = std::make_shared<Meeting>();
      meeting = found;
      meeting->ranks.at(value_of<std::uint32_t>(arguments, 4)) = {value_of<const std::uint32_t*>(arguments, 0),
                                                                  value_of<std::uint32_t*>(arguments, 1)};
      if (++meeting->came == meeting->ranks.size())
        for (std::size_t i = 0; i < value_of<std::uint64_t>(arguments, 2) / sizeof(std::uint32_t); ++i) {
          const std::uint32_t sum = meeting->ranks[0].in[i] + meeting->ranks[1].in[i];
          for (const Meeting::Rank& rank : meeting->ranks) rank.out[i] = sum;
        }
    }
    const auto* const given_up = value_of<const std::atomic<std::uint32_t>*>(arguments, 7);
    return meeting->came == meeting->ranks.size() || given_up->load() != 0;
  };
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

void FakeGpus::hold(const CudaClient& client, const Handle& buffer) {
  static const CudaKernel kernel = kernel_of("hold", {KernelParameter::buffer()});
  client.launch(kernel, CubeCount::single(), KernelArguments().with_buffer(buffer));
}

std::vector<std::uint32_t> FakeGpus::appended() {
  const std::lock_guard lock(fake.mutex);
  return appended_;
}

int FakeGpus::live() {
  const std::lock_guard lock(fake.mutex);
  return fake.live;
}

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

const char* FakeGpus::stop_failing() {
  const std::lock_guard lock(fake.mutex);
  fake.calls_until_failure = -1;
  return fake.failed;
}

}  // namespace cox::test
