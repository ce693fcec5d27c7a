// What the CUDA server says of its devices and refuses, over a stand-in for the driver.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

CudaKernel append_kernel(CubeDim dim, CudaKernelOptions options = {}) {
  const std::string text = ".version 8.0";
  options.parameters = {KernelParameter::buffer(), KernelParameter::scalar(4)};
  return CudaKernel::from_image("append", dim, std::as_bytes(std::span(text)), std::move(options));
}

KernelArguments arguments(const Handle& buffer, std::uint32_t number) {
  return KernelArguments().with_buffer(buffer).with_scalar(number);
}

/// What comes of one launch.
std::optional<LaunchError> failure_of(const CudaClient& client, const CudaKernel& kernel) {
  client.launch(kernel, CubeCount::single(), arguments(client.empty(64), 1));
  try {
    client.sync().get();
  } catch (const ServerError& error) {
    try {
      std::rethrow_exception(error.errors().front());
    } catch (const LaunchError& launch) {
      return launch;
    }
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("A device says that it has collectives and peer copies where there are several and NCCL is there") {
  FakeGpus gpus;
  const Features features = gpus.client().features();
  CHECK(features.contains(Feature::PeerCopy));
  CHECK(features.contains(Feature::Collectives));
  CHECK(features.contains(Feature::Graphs));
  CHECK(features.contains(Feature::DynamicCubeCount));
}

TEST_CASE("launch_unchecked is a launch, whatever the setting of the check mode") {
  FakeGpus gpus;
  std::vector<std::uint32_t> expected;
  for (const CheckMode mode : {CheckMode::Auto, CheckMode::Validate, CheckMode::Enforce}) {
    set_settings({{"compilation.check_mode", std::string(check_mode_names[static_cast<std::size_t>(mode)])}});
    const CudaClient client = gpus.client();
    const Handle buffer = client.empty(64);
    const auto number = static_cast<std::uint32_t>(expected.size());
    client.launch_unchecked(append_kernel(CubeDim::single()), CubeCount::single(), arguments(buffer, number));
    client.sync().get();
    expected.push_back(number);
    CHECK(gpus.appended() == expected);
    shutdown(gpus.device(0));
  }
  reset_settings({"compilation.check_mode"});
}

TEST_CASE("A launch that exceeds a limit says which, and one that the driver refuses says that it did") {
  FakeGpus gpus;
  const CudaClient client = gpus.client();
  const auto limit_of = [&](const CudaKernel& kernel) {
    const auto failure = failure_of(client, kernel);
    REQUIRE(failure);
    REQUIRE(failure->kind() == LaunchError::Kind::TooManyResources);
    REQUIRE(failure->limit());
    return *failure->limit();
  };
  using Resource = ResourceLimit::Resource;
  const ResourceLimit none = limit_of(append_kernel({0, 1, 1}));
  CHECK(none.resource == Resource::CubeDim);
  CHECK(none.requested[0] == 0);
  CHECK(limit_of(append_kernel({64, 64, 1})).resource == Resource::UnitsPerCube);
  const ResourceLimit shared = limit_of(append_kernel(CubeDim::single(), {.dynamic_shared_memory = 300 << 10}));
  CHECK(shared.resource == Resource::SharedMemory);
  CHECK(shared.requested[0] == 300 << 10);
  CHECK(shared.maximum[0] == 227 << 10);

  using Kind = LaunchError::Kind;
  for (const auto& [refusal, kind] : {std::pair{CUDA_ERROR_OUT_OF_MEMORY, Kind::OutOfMemory},
                                      std::pair{CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, Kind::TooManyResources},
                                      std::pair{CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, Kind::TooManyResources},
                                      std::pair{CUDA_ERROR_INVALID_VALUE, Kind::Unknown}}) {
    const auto refuse = [&](int result) {
      const std::lock_guard lock(gpus.fake.mutex);
      gpus.fake.refusal = result;
    };
    refuse(refusal);
    const auto failure = failure_of(client, append_kernel(CubeDim::single(), {.cooperative = true}));
    refuse(0);
    REQUIRE(failure);
    CHECK(failure->kind() == kind);
    CHECK_FALSE(failure->limit());
    CHECK_THAT(std::string(failure->what()), Catch::Matchers::ContainsSubstring("was refused by the driver"));
  }
  CHECK_FALSE(failure_of(client, append_kernel(CubeDim::single())));
}

TEST_CASE("Cleanup keeps page-locked memory, which is used again, until the device is shut down") {
  FakeGpus gpus;
  const CudaClient client = gpus.client();
  constexpr std::size_t size = std::size_t{1} << 20U;
  static_cast<void>(client.reserve_staging(std::vector<std::size_t>{size}));
  client.memory_cleanup();
  gpus.pass(0);
  const int live = gpus.live();
  for (int i = 0; i < 3; ++i) {
    static_cast<void>(client.reserve_staging(std::vector<std::size_t>{size}));
    client.memory_cleanup();
    gpus.pass(0);
    CHECK(gpus.live() == live);
  }
  CHECK(gpus.undestroyed_objects().empty());
}
