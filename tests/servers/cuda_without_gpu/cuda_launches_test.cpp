// Launches of the CUDA server over a stand-in for the driver.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/device_handle/handle/inline_device_handle.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

std::vector<std::uint32_t> counting(std::uint32_t count) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 1U);
  return numbers;
}

/// A stream of GPU 0 that the library does not own.
class StreamOfOwner {
 public:
  StreamOfOwner() {
    const detail::CurrentContext current(*context_);
    COX_CUDA_TRY(stream_create(stream_.out(), CU_STREAM_NON_BLOCKING, 0));
  }
  StreamOfOwner(const StreamOfOwner&) = delete;
  StreamOfOwner& operator=(const StreamOfOwner&) = delete;
  ~StreamOfOwner() {
    const detail::CurrentContext current(*context_);
    stream_.reset();
  }
  [[nodiscard]] CUstream native() const noexcept { return stream_.get(); }

 private:
  std::shared_ptr<detail::CudaContext> context_ = detail::CudaContext::open(0);
  detail::DriverStream stream_;
};

}  // namespace

TEST_CASE("Launches that come one behind the other are few graphs, in their order") {
  FakeGpus gpus;
  const CudaClient client = gpus.client();
  const Handle buffer = client.empty(64);
  client.sync().get();
  {
    const BusyDevice busy(0);
    for (const std::uint32_t number : counting(100)) gpus.append(client, buffer, number);
  }
  client.sync().get();
  CHECK(gpus.appended() == counting(100));
  const std::lock_guard lock(gpus.fake.mutex);
  CHECK(gpus.fake.launches == 0);
  CHECK(gpus.fake.graph_launches == 7);  // 6 of 16, and 4
  CHECK(gpus.fake.misuse.empty());
}

TEST_CASE("With the setting for it each kernel is launched by itself") {
  FakeGpus gpus;
  set_settings({{"cuda.launches_at_a_time", std::uint64_t{1}}});
  {
    const CudaClient client = gpus.client();
    const Handle buffer = client.empty(64);
    {
      const BusyDevice busy(0);
      for (const std::uint32_t number : counting(20)) gpus.append(client, buffer, number);
    }
    client.sync().get();
  }
  reset_settings({"cuda.launches_at_a_time"});
  CHECK(gpus.appended() == counting(20));
  const std::lock_guard lock(gpus.fake.mutex);
  CHECK(gpus.fake.launches == 20);
  CHECK(gpus.fake.graph_launches == 0);
}

TEST_CASE("Kernels with attributes are launched by themselves, with these, in their place among the others") {
  FakeGpus gpus;
  const CudaClient client = gpus.client();
  const Handle buffer = client.empty(64);
  client.sync().get();
  {
    const BusyDevice busy(0);
    for (const std::uint32_t number : counting(11)) {
      switch (number) {
        case 3: gpus.append(client, buffer, number, {.cooperative = true}); break;
        case 6: gpus.append(client, buffer, number, {.cluster_dim = {2, 1, 1}}); break;
        case 7: gpus.append(client, buffer, number, {.programmatic_launch = true}); break;
        default: gpus.append(client, buffer, number);
      }
    }
  }
  client.sync().get();
  CHECK(gpus.appended() == counting(11));
  const std::lock_guard lock(gpus.fake.mutex);
  CHECK(gpus.fake.launches == 3);
  CHECK(gpus.fake.graph_launches == 3);  // of two, of two and of four
  CHECK(gpus.fake.attributes == std::vector<int>{CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                                 CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION});
}

TEST_CASE("L3: a launch is given to the driver though nothing comes behind it") {
  FakeGpus gpus;
  const CudaClient client = gpus.client();
  const Handle buffer = client.empty(64);
  for (std::uint32_t number = 1; number <= 3; ++number) {
    gpus.append(client, buffer, number);
    while (gpus.appended().size() < number) std::this_thread::yield();
  }
  CHECK(gpus.appended() == counting(3));
}

TEST_CASE("Who waits for work is told of its end though the device thread, which looked for him, has another task") {
  for (int i = 0; i < 20; ++i) {
    FakeGpus gpus;
    const CudaClient client = gpus.client();
    const Handle buffer = client.empty(64);
    gpus.hold(client, buffer);
    auto over = client.sync();
    gpus.pass(0);  // from here on the device thread looks at the event
    {
      const BusyDevice busy(0);
      gpus.release();
      over.get();
    }
    gpus.append(client, buffer, 1);
    client.sync().get();
    CHECK(gpus.appended().size() == 1);
  }
}

TEST_CASE("L3: a launch is not kept while launches of other streams come without end") {
  FakeGpus gpus;
  gpus.run_in_order();
  const CudaClient one = gpus.client();
  const CudaClient other = gpus.client();
  const Handle first = one.empty(64);
  const Handle second = other.empty(64);
  one.sync().get();
  other.sync().get();
  {
    const BusyDevice busy(0);
    gpus.append(one, first, 1000);
    for (const std::uint32_t number : counting(200)) gpus.append(other, second, number);
  }
  other.sync().get();
  const auto ran = gpus.appended();
  REQUIRE(ran.size() == 201);
  CHECK(std::ranges::find(ran, 1000U) - ran.begin() < 16);
}

TEST_CASE("Streams that share a buffer keep its order, however their launches are given to the driver") {
  FakeGpus gpus;
  const CudaClient one = gpus.client();
  const CudaClient other = gpus.client();
  const Handle buffer = one.empty(64);
  one.sync().get();
  {
    const BusyDevice busy(0);
    for (const std::uint32_t number : counting(60)) gpus.append(number % 7 < 3 ? one : other, buffer, number);
  }
  one.sync().get();
  other.sync().get();
  CHECK(gpus.appended() == counting(60));
}

TEST_CASE("Whichever call of the driver fails, launches are told, none runs twice, and the device serves on") {
  for (int calls = 0;; ++calls) {
    FakeGpus gpus;
    INFO("call " << calls);
    bool opened = false;
    Attempts attempt;
    gpus.fail_after(calls);
    std::optional<CudaClient> client;
    attempt([&] {
      client = gpus.client();
      opened = true;
    });
    if (opened) {
      const Handle buffer = client->create(Bytes::zeroed(4096));
      {
        const BusyDevice busy(0);
        for (const std::uint32_t number : counting(43)) gpus.append(*client, buffer, number);
      }
      attempt([&] { static_cast<void>(client->read_one(buffer)); });
      attempt([&] { client->sync().get(); });
    }
    const char* const failed = gpus.stop_failing();
    INFO((failed != nullptr ? failed : "nothing") << " has failed");
    const auto ran = gpus.appended();
    REQUIRE(std::ranges::is_sorted(ran, std::ranges::less_equal()));  // none twice
    if (!attempt.failed()) REQUIRE(ran == counting(43));
    if (opened) {
      const Handle another = client->create(Bytes::zeroed(64));
      gpus.append(*client, another, 1000);
      REQUIRE_NOTHROW(client->read_one(another));
      REQUIRE(gpus.appended().back() == 1000);
    }
    client.reset();
    REQUIRE(gpus.undestroyed_objects().empty());
    if (failed != nullptr) continue;
    REQUIRE(calls > 20);
    break;
  }
}

// Launch 1 waits on the host for a dynamic cube count, launch 2 for launch 1; then the driver fails to have 2 wait.
TEST_CASE("L11: what is queued after a launch that could not be issued waits for what that was to wait for") {
  for (int calls = 0;; ++calls) {
    std::atomic<bool> has_cubes{false};
    std::atomic<bool> runs{false};
    std::atomic<bool> may_end{false};
    FakeGpus gpus;
    INFO("call " << calls);
    gpus.run_in_order();
    {
      const auto until = [](auto condition) {
        return [condition] { return [condition](const auto&) { return condition(); }; };
      };
      const std::lock_guard lock(gpus.fake.mutex);
      gpus.fake.kernels["give_cubes"] = {{8}, until([&] { return has_cubes.load(); })};
      gpus.fake.kernels["run_long"] = {{8}, until([&] {
                                         runs = true;
                                         return may_end.load();
                                       })};
    }
    std::vector<CudaClient> clients;
    for (int i = 0; i < 4; ++i) clients.push_back(gpus.client());
    const Handle cubes = clients[0].create(Bytes::copy_of(counting(3)));
    const Handle memory = clients[0].create(Bytes::copy_of(counting(10)));
    const Handle other = clients[3].create(Bytes::copy_of(counting(1)));
    for (const CudaClient& client : clients) client.sync().get();
    gpus.launch(clients[0], "give_cubes", CubeCount::single(), cubes);
    gpus.launch(clients[0], "run_long", CubeCount::dynamic(cubes), memory);
    gpus.append(clients[1], memory, 1);
    gpus.append(clients[2], memory, 2);
    gpus.pass(0);
    gpus.fail_after(calls);
    has_cubes = true;
    while (!runs && !gpus.has_failed()) std::this_thread::yield();
    for (int i = 0; i < 10; ++i) gpus.pass(0);  // what follows from it has been done
    const char* const failed = gpus.stop_failing();
    INFO((failed != nullptr ? failed : "nothing") << " has failed");
    gpus.append(clients[3], other, 3);
    Attempts attempt;
    attempt([&] { clients[3].sync().get(); });
    if (runs) CHECK(gpus.appended() == std::vector<std::uint32_t>{3});
    may_end = true;
    for (const CudaClient& client : clients) attempt([&] { client.sync().get(); });
    for (const CudaClient& client : clients) client.sync().get();
    const auto ran = gpus.appended();
    CHECK(std::ranges::count(ran, 2U) <= 1);
    if (failed != nullptr) continue;
    CHECK_FALSE(attempt.failed());
    CHECK(ran == std::vector<std::uint32_t>{3, 1, 2});
    CHECK(calls > 3);
    break;
  }
}

TEST_CASE("L14: memory whose owner cannot be waited for is poisoned, also behind work that is issued later") {
  bool has_refused_wait = false;
  for (int calls = 0;; ++calls) {
    std::atomic<bool> has_cubes{false};
    std::atomic<bool> may_end{false};
    FakeGpus gpus;
    INFO("call " << calls);
    gpus.run_in_order();
    {
      const auto until = [](auto condition) {
        return [condition] { return [condition](const auto&) { return condition(); }; };
      };
      const std::lock_guard lock(gpus.fake.mutex);
      gpus.fake.kernels["give_cubes"] = {{8}, until([&] { return has_cubes.load(); })};
      gpus.fake.kernels["run_long"] = {{8}, until([&] { return may_end.load(); })};
    }
    const StreamOfOwner owner;
    const CudaClient client = gpus.client();
    const CudaClient other = gpus.client();
    const Handle cubes = client.create(Bytes::copy_of(counting(3)));
    const Handle first = client.create(Bytes::copy_of(counting(10)));
    const Handle memory = client.create(Bytes::copy_of(counting(10)));
    client.sync().get();
    gpus.launch(other, "run_long", CubeCount::single(), memory);
    gpus.launch(client, "give_cubes", CubeCount::single(), cubes);
    gpus.append_dynamic(client, cubes, first, 1);  // issued when there are cubes, and so is what is queued after it:
    client.ready_after(memory, owner.native());
    gpus.append(client, memory, 2);
    gpus.pass(0);
    gpus.fail_after(calls);
    has_cubes = true;
    for (int i = 0; i < 10; ++i) gpus.pass(0);
    may_end = true;
    Attempts attempt;
    attempt([&] { client.sync().get(); });
    const char* const failed = gpus.stop_failing();
    INFO((failed != nullptr ? failed : "nothing") << " has failed: " << attempt.said());
    attempt([&] { other.sync().get(); });
    const auto ran = gpus.appended();
    // The wait for the owner has failed, not a launch and not the sync.
    if (mentions(attempt.said(), {"is unhealthy", "stream_wait_event"}) && std::ranges::count(ran, 1U) == 1) {
      CHECK(std::ranges::count(ran, 2U) == 0);
      CHECK(memory.failure().has_value());
      has_refused_wait = true;
    }
    if (failed != nullptr) continue;
    CHECK_FALSE(attempt.failed());
    CHECK(ran == std::vector<std::uint32_t>{1, 2});
    break;
  }
  CHECK(has_refused_wait);
}

// The read of the count waits on the host behind an upload: it is issued later, and may fail then.
TEST_CASE("Whichever call of the driver fails, a launch with a dynamic cube count has that count or is told") {
  constexpr std::size_t large = std::size_t{1} << 18U;
  for (int calls = 0;; ++calls) {
    FakeGpus gpus;
    INFO("call " << calls);
    std::vector<unsigned> counts;  // under the stand-in's lock
    {
      const std::lock_guard lock(gpus.fake.mutex);
      gpus.fake.kernels["note_cubes"] = {{8}, [&] {
                                           return [&](const FakeCuda::Run& run) {
                                             counts.push_back(run.cubes[0]);
                                             return true;
                                           };
                                         }};
    }
    {
      const CudaClient client = gpus.client();
      const Handle uploaded = client.create(Bytes::zeroed(large * 4));
      const Handle cubes = client.create(Bytes::copy_of(std::vector<std::uint32_t>{5, 1, 1}));
      client.sync().get();
      gpus.hold(gpus.client(), uploaded);
      client.write(uploaded, Bytes::zeroed(large * 4));
      gpus.append(client, uploaded, 1);
      gpus.launch(client, "note_cubes", CubeCount::dynamic(cubes), cubes);
      gpus.pass(0);
      gpus.fail_after(calls);
      gpus.release();
      Attempts attempt;
      attempt([&] { client.sync().get(); });
      const char* const failed = gpus.stop_failing();
      INFO((failed != nullptr ? failed : "nothing") << " has failed");
      client.sync().get();
      const std::lock_guard lock(gpus.fake.mutex);
      REQUIRE(counts == (attempt.failed() && counts.empty() ? std::vector<unsigned>() : std::vector<unsigned>{5}));
      if (failed != nullptr) continue;
      REQUIRE_FALSE(attempt.failed());
      REQUIRE(counts.size() == 1);
      REQUIRE(calls > 3);
    }
    break;
  }
}

// The driver is given launches later than they are queued: with the next work of the stream, which is the first read
// here. A launch may also be pending on the host, behind an upload.
TEST_CASE("L12: the first read after a launch fails if the driver refuses that, and no later read does") {
  constexpr std::size_t large = std::size_t{1} << 18U;
  for (const bool is_pending : {false, true}) {
    FakeGpus gpus;
    INFO((is_pending ? "pending" : "issued at once"));
    const auto refuse = [&](int result) {
      const std::lock_guard lock(gpus.fake.mutex);
      gpus.fake.refusal = result;
    };
    const CudaClient client = gpus.client();
    const Handle uploaded = client.create(Bytes::zeroed(large * 4));
    const Handle buffer = client.create(Bytes::copy_of(counting(10)));
    const Handle large_one = client.empty(std::size_t{5} << 20U);
    client.sync().get();
    if (is_pending) {
      gpus.hold(gpus.client(), uploaded);
      gpus.pass(0);
      client.write(uploaded, Bytes::zeroed(large * 4));
    }
    std::vector<Future<std::vector<Bytes>>> reads;
    {
      const BusyDevice busy(0);
      refuse(CUDA_ERROR_OUT_OF_MEMORY);
      gpus.append(client, is_pending ? uploaded : buffer, 2);
      for (const Handle& read : {buffer, large_one, buffer}) reads.push_back(client.read_async(std::vector{read}));
    }
    gpus.pass(0);
    gpus.release();
    CHECK_THROWS_AS(reads[0].get(), ServerError);
    CHECK_NOTHROW(reads[1].get());
    if (is_pending) {
      CHECK_NOTHROW(reads[2].get());
    } else {  // the launch should have written it (L14)
      CHECK(kind_of<IoError>([&] { reads[2].get(); }) == IoError::Kind::Poisoned);
    }
    refuse(0);
    client.sync().get();
    CHECK(gpus.appended().empty());
  }
}

// On inline devices all of this runs on the thread of a task of another device.
TEST_CASE("L3: launches on two inline devices inside one task of another device are all given to the driver") {
  using InlineClient = ComputeClient<CudaServer, InlineDeviceHandle>;
  struct Tasks {
    explicit Tasks(DeviceId) {}
  };
  FakeGpus gpus;
  const InlineClient one = InlineClient::load(gpus.device(2));
  const InlineClient other = InlineClient::load(gpus.device(3));
  static const CudaKernel kernel = [] {
    const std::string text = ".version 8.0";
    CudaKernelOptions options;
    options.parameters = {KernelParameter::buffer(), KernelParameter::scalar(4)};
    return CudaKernel::from_image("append", CubeDim::single(), std::as_bytes(std::span(text)), std::move(options));
  }();
  const Handle first = one.empty(64);
  const Handle second = other.empty(64);
  DeviceHandle<Tasks>::get({77, 1}).submit([&](Tasks&) {
    one.launch(kernel, CubeCount::single(), KernelArguments().with_buffer(first).with_scalar(std::uint32_t{1}));
    other.launch(kernel, CubeCount::single(), KernelArguments().with_buffer(second).with_scalar(std::uint32_t{2}));
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (gpus.appended().size() < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  auto ran = gpus.appended();
  std::ranges::sort(ran);
  CHECK(ran == counting(2));
}
