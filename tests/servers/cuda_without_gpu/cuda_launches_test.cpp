// Launches of the CUDA server over a stand-in for the driver.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/process_settings.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

std::vector<std::uint32_t> counting(std::uint32_t count) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 1U);
  return numbers;
}

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
    REQUIRE(gpus.left_over().empty());
    if (failed != nullptr) continue;
    REQUIRE(calls > 20);
    break;
  }
}
