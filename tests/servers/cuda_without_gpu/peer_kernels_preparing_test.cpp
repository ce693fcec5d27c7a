#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

using namespace cox;
using namespace cox::detail;
using namespace cox::test;

namespace {

CollectiveRequest all_reduce_of(ReduceOperation operation) {
  CollectiveRequest request;
  request.operation = CollectiveOperation::AllReduce;
  request.element_type = ElementType::U32;
  request.reduce_operation = operation;
  request.count = 1;
  return request;
}

std::shared_ptr<void> at_once() { return nullptr; }

}  // namespace

TEST_CASE("L3 a rank whose kernels are prepared does not wait while others are being prepared") {
  const FakeGpus gpus;
  const std::vector<DeviceId> devices{{cuda_device_type, 0}, {cuda_device_type, 0}};
  PeerKernels kernels(devices, std::vector(devices.size(), CudaContext::open(0)));
  const CollectiveRequest sum = all_reduce_of(ReduceOperation::Sum);
  const CollectiveRequest largest = all_reduce_of(ReduceOperation::Max);
  kernels.prepare(sum, at_once);
  REQUIRE(kernels.prepared(sum));

  std::promise<void> entered;
  std::promise<void> released;
  std::jthread other([&] {
    kernels.prepare(largest, [&] {
      entered.set_value();
      released.get_future().wait();
      return at_once();
    });
  });
  entered.get_future().wait();
  const auto again = std::async(std::launch::async, [&] { kernels.prepare(sum, at_once); });
  CHECK(again.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
  CHECK_FALSE(kernels.prepared(largest));
  released.set_value();
  other.join();
  CHECK(kernels.usable(largest));
}
