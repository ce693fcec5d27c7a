// Waits between the streams of a device, over a stand-in for the driver.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/service/post_queue.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/servers/cuda/event/cuda_event.hpp>
#include <coxswain/servers/cuda/event/cuda_poller.hpp>
#include <coxswain/servers/cuda/stream/cuda_streams.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

using namespace cox;
using namespace cox::detail;
using namespace cox::test;
using namespace std::chrono_literals;

namespace {

template <class Condition>
bool comes_true(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Work that gives the driver nothing.
void nothing(const IssueTarget&) {}

/// The streams of a device, and a driver stream that is held until release().
class Streams {
 public:
  Streams() : context_(CudaContext::open(0)), current_(*context_) {
    COX_CUDA_TRY(stream_create(held_.out(), CU_STREAM_NON_BLOCKING, 0));
    word_ = events->counter();
    COX_CUDA_TRY(stream_wait_value(held_.get(), word_, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams() {
    release();
    COX_CUDA_CHECK(stream_synchronize(held_.get()));
    streams.synchronize();
    poller_->stop();
  }

  void release() { reinterpret_cast<std::atomic<std::uint32_t>*>(word_)->store(1); }
  [[nodiscard]] CUstream held() const { return held_.get(); }

 private:
  std::shared_ptr<CudaContext> context_;
  CurrentContext current_;
  std::shared_ptr<CudaPoller> poller_ = std::make_shared<CudaPoller>("test-poll");
  DriverStream held_;
  CUdeviceptr word_ = 0;

 public:
  std::shared_ptr<CudaEvents> events = std::make_shared<CudaEvents>(context_, poller_, CudaEvents::Timing::Off);
  CudaStreams streams{
      FakeGpus::device(0), events, std::make_shared<PostQueue>(FakeGpus::device(0), [] {}), {.launches_at_a_time = 1}};
};

}  // namespace

// The event of the other stream's work is reached, and used again for later work, while the waiting stream's launches
// are given to the driver.
TEST_CASE("A stream waits for the work that it was told to, whatever its earlier launches have found complete") {
  FakeGpus gpus;
  {
    Streams device;
    const std::shared_ptr<CudaStream> other = device.streams.create_dedicated_stream();
    const std::shared_ptr<CudaStream> waiting = device.streams.create_dedicated_stream();
    const StreamPosition work = device.streams.submit(*other, {}, {}, nothing);
    device.streams.mark(*other);
    NativeStream& native = waiting->queue().native();
    std::shared_ptr<CudaEvent> later;
    native.set_flush_callback([&] {
      REQUIRE(comes_true([&] {
        other->queue().poll();
        return other->queue().timeline().completed() == work.position;
      }));
      if (later == nullptr) later = device.events->record(device.held());
    });
    gpus.fake.refusal = CUDA_ERROR_OUT_OF_MEMORY;  // the launch fails, which does not matter here
    native.add_launch({}, [](const LaunchBatch::Outcome&) {});
    device.streams.submit(*waiting, {work}, {}, nothing);
    native.set_flush_callback({});
    gpus.fake.refusal = 0;
    REQUIRE(later != nullptr);
    CHECK(comes_true([&] { return driver().stream_query(native.native()) == CUDA_SUCCESS; }));
  }
  CHECK(gpus.undestroyed_objects().empty());
}
