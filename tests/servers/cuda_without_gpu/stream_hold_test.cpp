// Holds of a stream that are opened in another order, where memory is missing, over a stand-in for the driver.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/collective/stream_hold.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

using namespace cox;
using namespace cox::detail;
using namespace cox::test;
using namespace std::chrono_literals;

namespace {

bool passes(const DriverStream& stream) {
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (driver().stream_query(stream.get()) != CUDA_SUCCESS) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

TEST_CASE("No hold of a stream stays shut where memory is missing to keep their order") {
  const FakeGpus gpus;
  const std::shared_ptr<CudaContext> context = CudaContext::open(0);
  const CurrentContext current(*context);
  DriverStream stream;
  COX_CUDA_TRY(stream_create(stream.out(), CU_STREAM_NON_BLOCKING, 0));
  StreamHold hold(context);
  for (std::uint32_t number = 1; number <= 3; ++number) REQUIRE(hold.enqueue(stream.get()) == number);
  hold.open(3);
  CHECK(driver().stream_query(stream.get()) == CUDA_ERROR_NOT_READY);
  allocations_until_failure = 0;
  hold.open(2);
  allocations_until_failure = -1;
  CHECK(passes(stream));
  hold.open(1);
  for (std::uint32_t number = 4; number <= 5; ++number) REQUIRE(hold.enqueue(stream.get()) == number);
  CHECK(driver().stream_query(stream.get()) == CUDA_ERROR_NOT_READY);
  hold.open(5);
  CHECK(passes(stream));
  hold.open(4);
}
