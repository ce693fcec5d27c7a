// How work of a device's streams waits, over a stand-in for the driver.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/device_handle/service/post_queue.hpp>
#include <coxswain/device_handle/service/thread_context.hpp>
#include <coxswain/servers/cuda/collective/device_work.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/event/cuda_event.hpp>
#include <coxswain/servers/cuda/event/cuda_poller.hpp>
#include <coxswain/servers/cuda/stream/cuda_streams.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

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

struct FaultForgotten {
  FaultForgotten() = default;
  FaultForgotten(const FaultForgotten&) = delete;
  FaultForgotten& operator=(const FaultForgotten&) = delete;
  ~FaultForgotten() { forget_gpu_fault(); }
};

/// Work that gives the driver nothing.
void nothing(const IssueTarget&) {}

/// The streams of a device, and a driver stream that is held until release(1).
class Streams {
 public:
  explicit Streams(std::shared_ptr<PostQueue> its_posts = std::make_shared<PostQueue>(FakeGpus::device(0), [] {}))
      : posts(std::move(its_posts)), context_(CudaContext::open(0)), current_(*context_) {
    COX_CUDA_TRY(stream_create(held_.out(), CU_STREAM_NON_BLOCKING, 0));
    word_ = events->counter();
    COX_CUDA_TRY(stream_wait_value(held_.get(), word_, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams() {
    release(2);
    COX_CUDA_CHECK(stream_synchronize(held_.get()));
    streams.synchronize();
    poller_->stop();
  }

  void release(std::uint32_t value) { reinterpret_cast<std::atomic<std::uint32_t>*>(word_)->store(value); }
  [[nodiscard]] CUstream held() const { return held_.get(); }
  /// A stream, which is kept until the end.
  [[nodiscard]] std::shared_ptr<CudaStream> make_stream() {
    return kept_.emplace_back(streams.create_dedicated_stream());
  }

  const std::shared_ptr<PostQueue> posts;

 private:
  std::shared_ptr<CudaContext> context_;
  CurrentContext current_;
  std::shared_ptr<CudaPoller> poller_ = std::make_shared<CudaPoller>("test-poll");
  DriverStream held_;
  CUdeviceptr word_ = 0;
  std::vector<std::shared_ptr<CudaStream>> kept_;

 public:
  std::shared_ptr<CudaEvents> events = std::make_shared<CudaEvents>(context_, poller_, CudaEvents::Timing::Off);
  CudaStreams streams{FakeGpus::device(0), events, posts, {.launches_at_a_time = 1}};
};

}  // namespace

TEST_CASE("A stream waits for the last collective that it was told to wait for, in whatever order it was told") {
  FakeGpus gpus;
  {
    Streams device;
    const StreamSlot collectives = device.make_stream()->slot();
    const std::shared_ptr<CudaStream> waiting = device.make_stream();
    waiting->add_pending_waits({{collectives, 8}});
    waiting->add_pending_waits({{collectives, 7}});
    CHECK(waiting->pending_waits(device.streams) == StreamPositions{{collectives, 8}});
    waiting->add_pending_waits({{collectives, 9}});
    CHECK(waiting->pending_waits(device.streams) == StreamPositions{{collectives, 9}});
    waiting->clear_pending_waits();
  }
}

// The event of the other stream's work is reached, and used again for later work, while the waiting stream's launches
// are given to the driver.
TEST_CASE("A stream waits for the work that it was told to, whatever its earlier launches have found complete") {
  FakeGpus gpus;
  {
    Streams device;
    const std::shared_ptr<CudaStream> other = device.make_stream();
    const std::shared_ptr<CudaStream> waiting = device.make_stream();
    const StreamPosition work = device.streams.submit(*other, {}, {}, nothing);
    device.streams.mark(*other);
    NativeStream& native = waiting->queue().native();
    std::shared_ptr<CudaEvent> later;
    native.set_flush_callback([&] {
      REQUIRE(comes_true([&] {
        other->queue().poll();
        other->queue().native().poll();
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

TEST_CASE("What is called when work has been issued may have more work issued, whose waiters are called, too") {
  FakeGpus gpus;
  {
    Streams device;
    const std::shared_ptr<CudaStream> stream = device.make_stream();
    const auto ready = device.events->record(device.held());
    const StreamPosition last = device.streams.submit(*stream, {}, {}, nothing, ready);
    std::vector<int> called;
    for (int i = 0; i < 3; ++i)
      device.streams.when_issued({last}, [&, i] {
        called.push_back(i);
        device.streams.advance();
      });
    device.release(1);
    REQUIRE(comes_true([&] { return ready->reached(); }));
    REQUIRE(comes_true([&] {
      device.streams.advance();
      return !device.streams.has_pending();
    }));
    CHECK(called == std::vector{0, 1, 2});
  }
  CHECK(gpus.undestroyed_objects().empty());
}

namespace {

/// Runs what a test does on a device thread.
struct Runner {
  explicit Runner(ThreadContext& context) : thread(context) {}
  ThreadContext& thread;
};

}  // namespace

// A sync, say, that waits for an operation of another stream, which waits for something that the driver cannot wait
// for.
TEST_CASE("After a GPU fault a piece finds the work that it waits for not issued, and fails with the fault") {
  FakeGpus gpus;
  {
    Streams device;
    const std::shared_ptr<CudaEvent> never = device.events->record(device.held());
    const std::shared_ptr<CudaStream> waiting = device.make_stream();
    const std::shared_ptr<CudaStream> other = device.make_stream();
    // The other stream has a mark, of work that is not complete.
    never->enqueue_wait(other->queue().native().native());
    device.streams.submit(*other, {}, {}, nothing);
    device.streams.mark(*other);
    const StreamPosition work = device.streams.submit(*other, {}, {}, nothing, never);
    device.streams.submit(*waiting, {}, {}, nothing, never);
    CudaError::Kind kind{};
    bool has_failed = false;
    device.streams.submit(
        *waiting, {work}, {},
        [&](const IssueTarget&) {
          std::vector<std::shared_ptr<CudaEvent>> events;
          try {
            device.streams.add_events({work}, events);
          } catch (const CudaError& error) {
            has_failed = true;
            kind = error.kind();
          }
        },
        nullptr, PieceKind::Notice);
    REQUIRE(device.streams.has_pending());
    const FaultForgotten at_end;
    report_gpu_fault(CUDA_ERROR_ILLEGAL_ADDRESS, "launch");
    device.streams.abandon();  // begins with `waiting`: the streams take turns at being first
    CHECK(other->queue().timeline().issued() == work.position);
    CHECK(has_failed);
    CHECK(kind == CudaError::Kind::Unhealthy);
  }
}

TEST_CASE("A piece that could not be issued waits for its turn without keeping the device thread busy") {
  FakeGpus gpus;
  {
    const auto handle = DeviceHandle<Runner>::get({.type = cuda_device_type, .index = 1});
    std::unique_ptr<Streams> device;
    int notifications = 0;
    bool is_over = false;
    const auto posts = std::make_shared<PostQueue>(handle.device_id(), [&] {
      ++notifications;
      const CurrentContext current(*CudaContext::find(0));
      device->streams.on_notify();
      device->streams.advance();
      is_over = !device->streams.has_pending();
    });
    handle.submit_blocking([&](Runner& runner) {
      posts->attach(runner.thread);
      device = std::make_unique<Streams>(posts);
      CudaStreams& streams = device->streams;
      const std::shared_ptr<CudaStream> other = device->make_stream();
      const std::shared_ptr<CudaStream> waiting = device->make_stream();
      const StreamPosition work = streams.submit(*other, {}, {}, [&](const IssueTarget& target) {
        COX_CUDA_TRY(stream_wait_value(target.stream(), device->events->counter(), 2, CU_STREAM_WAIT_VALUE_GEQ));
      });
      streams.mark(*other);
      const auto ready = device->events->record(device->held());
      streams.submit(*waiting, {work}, {}, nothing, ready);
      device->release(1);
      REQUIRE(comes_true([&] { return ready->reached(); }));
      gpus.fail_after(0);
      streams.advance();  // the driver refuses to let `waiting` wait
      REQUIRE(gpus.stop_failing() != nullptr);
      REQUIRE(streams.has_pending());
      notifications = 0;
    });
    for (int i = 0; i < 100; ++i) handle.submit_blocking([](Runner&) {});
    CHECK(handle.submit_blocking([&](Runner&) { return notifications; }) < 10);
    device->release(2);
    CHECK(comes_true([&] { return handle.submit_blocking([&](Runner&) { return is_over; }); }));
    handle.submit_blocking([&](Runner&) {
      posts->close();
      device.reset();
    });
  }
  CHECK(gpus.undestroyed_objects().empty());
}

TEST_CASE("Other threads find out whether a device has work in flight") {
  FakeGpus gpus;
  const CudaClient client = FakeGpus::client();
  const Handle buffer = client.empty(64);
  client.sync().get();
  auto token = std::make_shared<int>();
  const std::weak_ptr<int> held = token;
  SECTION("a kernel that runs") {
    FakeGpus::hold(client, buffer);
    client.flush();
    DeviceWork::hold_while_busy({0}, token);
    token.reset();
    FakeGpus::pass(0);
    CHECK_FALSE(held.expired());
    gpus.release();
    CHECK(comes_true([&] { return held.expired(); }));
  }
  SECTION("none") {
    DeviceWork::hold_while_busy({0}, token);
    token.reset();
    CHECK(comes_true([&] { return held.expired(); }));
  }
  SECTION("a device that is not open") {
    DeviceWork::hold_while_busy({1}, token);
    token.reset();
    CHECK(held.expired());
  }
}
