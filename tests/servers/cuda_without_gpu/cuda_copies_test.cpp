// Copies of the CUDA server over a stand-in for the driver.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

std::vector<std::uint32_t> counting(std::size_t count, std::uint32_t begin) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

}  // namespace

TEST_CASE("Whichever call of the driver fails, what was to be copied is told or right, and the device serves on") {
  constexpr std::size_t small = 100;
  constexpr std::size_t large = std::size_t{3} << 18U;  // by the threads that copy, in pieces
  for (int calls = 0;; ++calls) {
    FakeGpus gpus;
    INFO("call " << calls);
    std::optional<CudaClient> client = gpus.client();
    client->sync().get();
    Attempts attempt;
    bool right = true;
    gpus.fail_after(calls);
    for (const std::size_t count : {small, large}) {
      attempt([&] {
        const Handle memory = client->create(Bytes::copy_of(counting(count, 5)));
        right = client->read_one(memory).to_vector<std::uint32_t>() == counting(count, 5) && right;
        client->write(memory, Bytes::copy_of(counting(count, 6)));
        gpus.append(*client, memory, 1);
        right = client->read_one(memory).to_vector<std::uint32_t>() == counting(count, 6) && right;
      });
      attempt([&] { client->sync().get(); });
    }
    const char* const failed = gpus.stop_failing();
    INFO((failed != nullptr ? failed : "nothing") << " has failed");
    REQUIRE(right);  // what is not told must be; what is told is not looked at
    if (failed == nullptr) REQUIRE(!attempt.failed());
    const Handle memory = client->create(Bytes::copy_of(counting(large, 7)));
    REQUIRE(client->read_one(memory).to_vector<std::uint32_t>() == counting(large, 7));
    client.reset();
    REQUIRE(gpus.undestroyed_objects().empty());
    if (failed == nullptr) break;
  }
}

TEST_CASE("Whichever call of the driver fails, padded tensors are told or right, and the device serves on") {
  const Shape shape{31, 7};
  const std::vector<std::uint32_t> content = counting(31 * 7, 5);
  for (int calls = 0;; ++calls) {
    FakeGpus gpus;
    INFO("call " << calls);
    std::optional<CudaClient> client = gpus.client();
    client->sync().get();
    const auto comes_back = [&] {
      const MemoryLayout tensor = client->create_tensor(Bytes::copy_of(content), shape, 4);
      const Bytes read = std::move(client->read_tensor_async({tensor.copy_descriptor(shape, 4)}).get().front());
      return read.to_vector<std::uint32_t>() == content;
    };
    Attempts attempt;
    bool right = true;
    gpus.fail_after(calls);
    attempt([&] { right = comes_back(); });
    attempt([&] { client->sync().get(); });
    const char* const failed = gpus.stop_failing();
    INFO((failed != nullptr ? failed : "nothing") << " has failed\n" << attempt.said());
    REQUIRE(right);
    if (failed == nullptr) REQUIRE(!attempt.failed());
    REQUIRE(comes_back());
    client.reset();
    REQUIRE(gpus.undestroyed_objects().empty());
    if (failed == nullptr) break;
  }
}

// One stream runs a kernel on the memory when the device has come to know its cubes; the upload of another comes
// behind.
TEST_CASE("L11: what comes behind an upload that has failed comes behind what that was to wait for, too") {
  constexpr std::size_t large = std::size_t{1} << 18U;
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
    const Handle cubes = clients[0].create(Bytes::copy_of(counting(3, 1)));
    const Handle memory = clients[0].create(Bytes::copy_of(counting(large, 0)));
    const Handle other = clients[3].create(Bytes::copy_of(counting(1, 0)));
    for (const CudaClient& client : clients) client.sync().get();
    gpus.launch(clients[0], "give_cubes", CubeCount::single(), cubes);
    gpus.launch(clients[0], "run_long", CubeCount::dynamic(cubes), memory);
    clients[1].write(memory, Bytes::copy_of(counting(large, 5)));
    gpus.append(clients[2], memory, 1);
    gpus.pass(0);
    gpus.fail_after(calls);
    has_cubes = true;
    while (!runs && !gpus.has_failed()) std::this_thread::yield();
    for (int i = 0; i < 10; ++i) gpus.pass(0);  // what follows from it has been done
    const char* const failed = gpus.stop_failing();
    INFO((failed != nullptr ? failed : "nothing") << " has failed");
    gpus.append(clients[3], other, 2);
    Attempts attempt;
    attempt([&] { clients[3].sync().get(); });
    if (runs) CHECK(gpus.appended() == std::vector<std::uint32_t>{2});
    may_end = true;
    for (const CudaClient& client : clients) attempt([&] { client.sync().get(); });
    for (const CudaClient& client : clients) client.sync().get();
    if (failed == nullptr) {
      CHECK_FALSE(attempt.failed());
      break;
    }
  }
}

namespace {

/// A read that fails with what comes before it in its stream, and is not issued before release().
class PendingRead {
 public:
  explicit PendingRead(FakeGpus& gpus) : gpus_(gpus) {
    const Handle uploaded = client.create(Bytes::copy_of(counting(large, 0)));
    const Handle small = client.create(Bytes::copy_of(counting(10, 0)));
    client.sync().get();
    gpus.hold(gpus.client(), uploaded);
    client.write(uploaded, Bytes::copy_of(counting(large, 5)));  // by copy threads, after that kernel
    gpus.launch(client, "no such kernel", CubeCount::single(), small);
    result.emplace(client.read_async(std::vector{small, uploaded.offset_end(uploaded.size() - 64)}));
    gpus.pass(0);
  }
  void require_failure() {
    gpus_.release();
    REQUIRE_THROWS_AS(result->get(), ServerError);
  }

  static constexpr std::size_t large = std::size_t{1} << 18U;
  const CudaClient client = FakeGpus::client();
  std::optional<Future<std::vector<Bytes>>> result;

 private:
  FakeGpus& gpus_;
};

}  // namespace

TEST_CASE("L12: a read that is refused leaves an earlier read, which is not issued yet, its failures") {
  FakeGpus gpus;
  PendingRead earlier(gpus);
  const CudaClient other = gpus.client(1);
  const Handle elsewhere = other.create(Bytes::copy_of(counting(10, 0)));
  auto refused = earlier.client.read_async(std::vector{elsewhere});
  gpus.pass(0);
  earlier.require_failure();
  CHECK_THROWS_AS(refused.get(), IoError);
  earlier.client.sync().get();
}

TEST_CASE("L12: a large read leaves an earlier read, which is not issued yet, its failures") {
  constexpr std::size_t very_large = std::size_t{5} << 18U;
  FakeGpus gpus;
  PendingRead earlier(gpus);
  const CudaClient other = gpus.client();
  const Handle memory = other.create(Bytes::copy_of(counting(very_large, 3)));
  other.sync().get();
  auto later = earlier.client.read_async(std::vector{memory});
  gpus.pass(0);
  earlier.require_failure();
  CHECK(later.get().front().to_vector<std::uint32_t>() == counting(very_large, 3));
  earlier.client.sync().get();
}

// The read waits on the host for an upload by the copy threads, and then for an event of another stream.
TEST_CASE("A read that the driver refuses when its turn comes fails with the driver's error") {
  constexpr std::size_t large = std::size_t{1} << 20U;
  bool has_failed_read = false;
  for (int calls = 0;; ++calls) {
    INFO("after " << calls << " calls");
    FakeGpus gpus;
    const CudaClient client = FakeGpus::client();
    const CudaClient holding = FakeGpus::client();
    const CudaClient other = FakeGpus::client();
    const Handle values = client.create(Bytes::zeroed(64));
    const Handle uploaded = client.create(Bytes::zeroed(large));
    client.sync().get();
    FakeGpus::hold(holding, uploaded);
    client.write(uploaded, Bytes::zeroed(large));
    FakeGpus::append(other, uploaded, 1);
    FakeGpus::append(other, values, 1);
    FakeGpus::append(client, uploaded, 2);
    auto read = client.read_async(std::vector<Handle>{values});
    FakeGpus::pass(0);
    gpus.fail_after(calls);
    gpus.release();
    std::exception_ptr error;
    try {
      static_cast<void>(read.get());
    } catch (...) {
      error = std::current_exception();
    }
    const bool has_failed = gpus.stop_failing() != nullptr;
    CHECK((error == nullptr || find_cause<CallError>(error) == nullptr));
    has_failed_read = has_failed_read || error != nullptr;
    for (const CudaClient* each : {&client, &other, &holding}) try {
        each->sync().get();
      } catch (const ServerError&) {
      }
    if (!has_failed) break;
  }
  CHECK(has_failed_read);
}
