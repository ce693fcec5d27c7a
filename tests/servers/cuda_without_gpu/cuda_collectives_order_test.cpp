// Collectives of the CUDA server over stand-ins for the driver and NCCL: what must be given to the driver when.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace cox;
using Catch::Matchers::ContainsSubstring;
using namespace cox::test;

namespace {

constexpr ElementType type = ElementType::U32;
constexpr std::size_t count = 100;

Bytes filled(std::uint32_t value) { return Bytes::copy_of(std::vector<std::uint32_t>(count, value)); }

bool holds(const CudaClient& client, const Handle& memory, std::uint32_t value) {
  return client.read_one(memory).to_vector<std::uint32_t>() == std::vector<std::uint32_t>(count, value);
}

/// So many that are there: filled with `first`, and each of the next with `step` more.
std::vector<Handle> handles(const CudaClient& client, std::uint32_t many, std::uint32_t first, std::uint32_t step) {
  std::vector<Handle> made;
  for (std::uint32_t i = 0; i < many; ++i) made.push_back(client.create(filled(first + i * step)));
  client.sync().get();
  return made;
}

/// What hangs is an error after 5 s.
class ShortTimeout {
 public:
  ShortTimeout() { set_settings({{"collectives.timeout", std::chrono::nanoseconds(std::chrono::seconds(5))}}); }
  ShortTimeout(const ShortTimeout&) = delete;
  ShortTimeout& operator=(const ShortTimeout&) = delete;
  ~ShortTimeout() { reset_settings({"collectives.timeout"}); }
};

const CommunicationId& both() {
  static const CommunicationId devices({FakeGpus::device(0), FakeGpus::device(1)});
  return devices;
}

/// A sum and a transfer; from the first on the communicators are there, and the code is.
struct Exchanged {
  bool summed = false;
  bool sent = false;
};
Exchanged exchange(const CudaClient& one, const CudaClient& other) {
  const Handle first = one.create(filled(1));
  const Handle second = other.create(filled(2));
  one.all_reduce(first, first, type, both());
  other.all_reduce(second, second, type, both());
  Exchanged exchanged;
  exchanged.summed = holds(one, first, 3) && holds(other, second, 3);
  one.write(first, filled(4));
  one.send(first, type, FakeGpus::device(1));
  other.receive(second, type, FakeGpus::device(0));
  exchanged.sent = holds(other, second, 4);
  return exchanged;
}

void warm_up(const CudaClient& one, const CudaClient& other) {
  const Exchanged exchanged = exchange(one, other);
  REQUIRE(exchanged.summed);
  REQUIRE(exchanged.sent);
}

/// Of handles(..., 0, 1) and handles(..., 1000, 0).
void require_sums(const CudaClient& one, const std::vector<Handle>& first, const CudaClient& other,
                  const std::vector<Handle>& second) {
  for (std::uint32_t i = 0; i < first.size(); ++i) {
    REQUIRE(holds(one, first[i], 1000 + i));
    REQUIRE(holds(other, second[i], 1000 + i));
  }
}

}  // namespace

TEST_CASE("Sums that come one behind the other are given to the driver together, and are right") {
  FakeGpus gpus;
  const ShortTimeout timeout;
  const CudaClient one = gpus.client(0);
  const CudaClient other = gpus.client(1);
  warm_up(one, other);
  const std::vector<Handle> first = handles(one, 40, 0, 1);
  const std::vector<Handle> second = handles(other, 40, 1000, 0);
  {
    const std::lock_guard lock(gpus.fake.mutex);
    gpus.fake.launches = gpus.fake.graph_launches = 0;
  }
  for (const Handle& memory : first) one.all_reduce(memory, memory, type, both());
  gpus.pass(0);
  {
    const BusyDevice busy(0);  // until all of its turns have come
    for (const Handle& memory : second) other.all_reduce(memory, memory, type, both());
    gpus.pass(1);
  }
  require_sums(one, first, other, second);
  const std::lock_guard lock(gpus.fake.mutex);
  CHECK(gpus.fake.launches == 0);
  CHECK(gpus.fake.graph_launches < 20);  // of 80 kernels
}

TEST_CASE("What is submitted before the communicator is there is asked for in its order, however much it is") {
  FakeGpus gpus;
  const ShortTimeout timeout;
  const CudaClient one = gpus.client(0);
  const CudaClient other = gpus.client(1);
  constexpr std::uint32_t count = 200;  // more than is asked for at a time
  const std::vector<Handle> first = handles(one, count, 0, 1);
  const std::vector<Handle> second = handles(other, count, 1000, 0);
  for (std::uint32_t i = 0; i < count; ++i) {
    one.all_reduce(first[i], first[i], type, both());
    other.all_reduce(second[i], second[i], type, both());
  }
  require_sums(one, first, other, second);
}

// As on GPUs (cuda_collectives_test.cpp).
TEST_CASE("A sum is over for what follows it, though the driver was given the next one with it") {
  FakeGpus gpus;
  const ShortTimeout timeout;
  const CudaClient one = gpus.client(0);
  const CudaClient other = gpus.client(1);
  warm_up(one, other);
  for (int round = 0; round < 5; ++round) {
    const std::vector<Handle> first{one.create(filled(1)), one.create(filled(1))};
    const std::vector<Handle> second{other.create(filled(1)), other.create(filled(1))};
    one.all_reduce(first[0], first[0], type, both());
    one.all_reduce(first[1], first[1], type, both());
    one.send(first[0], type, gpus.device(1));
    gpus.pass(0);
    {
      const BusyDevice busy(0);
      other.all_reduce(second[0], second[0], type, both());
      other.receive(second[1], type, gpus.device(0));
      other.all_reduce(second[1], second[1], type, both());
      gpus.pass(1);
    }
    REQUIRE(holds(one, first[0], 2));
    REQUIRE(holds(other, second[0], 2));
    REQUIRE(holds(one, first[1], 3));
    REQUIRE(holds(other, second[1], 3));
  }
}

// The group takes two kernels: the driver is given the first one together with the sum.
TEST_CASE("A sum is over for what follows it, though the driver was given the first kernel of a group with it") {
  FakeGpus gpus;
  const ShortTimeout timeout;
  set_settings({{"cuda.launches_at_a_time", std::uint64_t{2}}});
  {
    const CudaClient one = gpus.client(0);
    const CudaClient other = gpus.client(1);
    warm_up(one, other);
    const auto sum_both = [](const CudaClient& client, const Handle& shorts, const Handle& words) {
      client.collective_group(both(), [&](CollectiveGroup& group) {
        group.all_reduce(shorts, shorts, ElementType::U16);  // NCCL does not do it
        group.all_reduce(words, words, type);
      });
    };
    for (int round = 0; round < 5; ++round) {
      const std::vector<Handle> first{one.create(filled(1)), one.create(filled(1)), one.create(filled(1))};
      const std::vector<Handle> second{other.create(filled(1)), other.create(filled(1)), other.create(filled(1))};
      one.all_reduce(first[0], first[0], type, both());
      sum_both(one, first[1], first[2]);
      one.send(first[0], type, gpus.device(1));
      gpus.pass(0);
      {
        const BusyDevice busy(0);
        other.all_reduce(second[0], second[0], type, both());
        other.receive(second[1], type, gpus.device(0));
        sum_both(other, second[1], second[2]);
        gpus.pass(1);
      }
      REQUIRE(holds(one, first[0], 2));
      REQUIRE(holds(other, second[0], 2));
      REQUIRE(holds(one, first[1], 3));
      REQUIRE(holds(other, second[1], 3));
      REQUIRE(holds(other, second[2], 2));
    }
  }
  reset_settings({"cuda.launches_at_a_time"});
}

// The transfer waits for a launch that cannot be issued yet. The sum comes behind it on device 1, where it needs what
// is received; on device 0 it can be issued at once. If a launch that waits for the sum were issued there, on the
// stream of the driver that all share, the other launch would come to stand behind it: and the transfer behind the sum,
// which waits for the transfer.
TEST_CASE("What waits for a sum is not issued before what an earlier transfer waits for") {
  FakeGpus gpus;
  const ShortTimeout timeout;
  set_settings({{"cuda.streams", std::uint64_t{1}}});
  {
    const CudaClient one = gpus.client(0);
    const CudaClient beside = gpus.client(0);
    const CudaClient other = gpus.client(1);
    warm_up(one, other);
    const Handle cubes = one.create(Bytes::copy_of(std::vector<std::uint32_t>{1, 1, 1}));
    const Handle sent = one.create(filled(7));
    const Handle summed = beside.create(filled(1));
    const Handle received = other.create(filled(0));
    one.sync().get();
    beside.sync().get();
    gpus.hold(one, cubes);
    gpus.append_dynamic(one, cubes, sent, 1);
    one.send(sent, type, gpus.device(1));
    other.receive(received, type, gpus.device(0));
    gpus.pass(0);
    gpus.pass(1);
    beside.all_reduce(summed, summed, type, both());
    other.all_reduce(received, received, type, both());
    gpus.pass(0);
    gpus.pass(1);
    gpus.append(beside, summed, 2);
    gpus.pass(0);
    gpus.pass(1);
    gpus.pass(0);
    gpus.release();
    CHECK(holds(other, received, 8));
    CHECK(holds(beside, summed, 8));
    CHECK(gpus.appended() == std::vector<std::uint32_t>{1, 2});
  }
  reset_settings({"cuda.streams"});
}

TEST_CASE("Whichever call of the driver fails, every rank of every operation is told or has the right sum") {
  FakeGpus::find();
  const ShortTimeout timeout;
  for (int calls = 0;; ++calls) {
    FakeGpus gpus;
    INFO("call " << calls);
    std::optional<CudaClient> one = gpus.client(0);
    std::optional<CudaClient> other = gpus.client(1);
    const bool is_warm = calls % 2 == 0;
    if (is_warm) warm_up(*one, *other);
    std::vector<Handle> first = handles(*one, 5, 0, 1);
    std::vector<Handle> second = handles(*other, 5, 10, 0);
    Attempts attempt;
    gpus.fail_after(calls / 2);
    for (const Handle& memory : first) attempt([&] { one->all_reduce(memory, memory, type, both()); });
    for (const Handle& memory : second) attempt([&] { other->all_reduce(memory, memory, type, both()); });
    attempt([&] { one->send(first[0], type, gpus.device(1)); });
    attempt([&] { other->receive(second[0], type, gpus.device(0)); });
    bool right = true;
    for (std::uint32_t i = 0; i < 5; ++i) {
      attempt([&] { right = holds(*one, first[i], 10 + i) && right; });
      attempt([&] { right = holds(*other, second[i], 10 + i) && right; });
    }
    for (const CudaClient* const client : {&*one, &*other})
      attempt([&] {
        client->sync_collective();
        client->sync().get();
      });
    const char* const failed = gpus.stop_failing();
    INFO((failed != nullptr ? failed : "nothing") << " has failed\n" << attempt.said());
    // Whatever the driver refuses is the driver's error to those who wait.
    if (attempt.failed()) REQUIRE_THAT(attempt.said(), ContainsSubstring("CUDA_ERROR_OUT_OF_MEMORY"));
    // Where there was no memory for kernels of our own NCCL sums, and what stands in for it does not.
    if (!attempt.failed() && is_warm) REQUIRE(right);
    if (failed == nullptr) REQUIRE(!attempt.failed());
    // The group works again.
    CommunicationId devices = both();
    for (const CudaClient* const client : {&*one, &*other}) client->ensure_init_collective(devices);
    const Exchanged exchanged = exchange(*one, *other);
    if (is_warm) REQUIRE(exchanged.summed);
    REQUIRE(exchanged.sent);
    one.reset();
    other.reset();
    first.clear();
    second.clear();
    shutdown_all();
    // What an abandoned kernel used is given back when that has ended, perhaps a moment after the shutdown.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (gpus.live() != 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    REQUIRE(gpus.live() == 0);
    const std::lock_guard lock(gpus.fake.mutex);
    REQUIRE(gpus.fake.misuse.empty());
    if (failed == nullptr && !is_warm) break;
  }
}

// The kernels are given to the driver one by one, so that it may refuse one and take the next one of the operation.
TEST_CASE("Whichever call of the driver fails, a rank of a group of several kernels is told or has the right sums") {
  FakeGpus::find();
  const ShortTimeout timeout;
  set_settings({{"cuda.launches_at_a_time", std::uint64_t{1}}});
  const auto sum = [](const CudaClient& client, const std::vector<Handle>& memory) {
    client.collective_group(both(), [&](CollectiveGroup& group) {
      group.all_reduce(memory[0], memory[0], ElementType::U16);  // NCCL does not do it
      group.all_reduce(memory[1], memory[1], type);
      group.all_reduce(memory[2], memory[2], ElementType::U16);
    });
  };
  for (int calls = 0;; ++calls) {
    FakeGpus gpus;
    INFO("call " << calls);
    const CudaClient one = gpus.client(0);
    const CudaClient other = gpus.client(1);
    warm_up(one, other);
    for (int round = 0; round < 2; ++round) {  // the second one finds what the first one has written
      const std::vector<Handle> first = handles(one, 3, 1, 1);
      const std::vector<Handle> second = handles(other, 3, 1, 1);
      sum(one, first);
      sum(other, second);
      REQUIRE((holds(one, first[2], 6) && holds(other, second[2], 6)));
    }
    const std::vector<Handle> first = handles(one, 3, 10, 10);
    const std::vector<Handle> second = handles(other, 3, 100, 100);
    Attempts first_attempt;
    Attempts second_attempt;
    gpus.fail_after(calls);
    first_attempt([&] { sum(one, first); });
    second_attempt([&] { sum(other, second); });
    const auto check = [](Attempts& attempt, const CudaClient& client, const std::vector<Handle>& memory) {
      bool right = true;
      for (std::uint32_t i = 0; i < 3; ++i) attempt([&] { right = holds(client, memory[i], 110 * (i + 1)) && right; });
      attempt([&] {
        client.sync_collective();
        client.sync().get();
      });
      return right || attempt.failed();
    };
    const bool first_is_told = check(first_attempt, one, first);
    const bool second_is_told = check(second_attempt, other, second);
    const char* const failed = gpus.stop_failing();
    INFO((failed != nullptr ? failed : "nothing") << " has failed\n"
                                                  << first_attempt.said() << '\n'
                                                  << second_attempt.said());
    REQUIRE(first_is_told);
    REQUIRE(second_is_told);
    if (failed != nullptr) continue;
    REQUIRE_FALSE((first_attempt.failed() || second_attempt.failed()));
    break;
  }
  reset_settings({"cuda.launches_at_a_time"});
}

TEST_CASE("Whenever the GPUs fault, everybody on every device is told, and the process goes on") {
  FakeGpus::find();
  const ShortTimeout timeout;
  for (int calls = 0;; ++calls) {
    FakeGpus gpus;
    INFO("after " << calls << " calls");
    const CudaClient one = gpus.client(0);
    const CudaClient other = gpus.client(1);
    warm_up(one, other);
    const std::vector<Handle> first = handles(one, 3, 0, 1);
    const std::vector<Handle> second = handles(other, 3, 10, 0);
    gpus.fault_after(calls);
    Attempts attempt;
    for (std::uint32_t number = 0; number < 5; ++number) gpus.append(one, first[0], number);
    for (const Handle& memory : first) attempt([&] { one.all_reduce(memory, memory, type, both()); });
    for (const Handle& memory : second) attempt([&] { other.all_reduce(memory, memory, type, both()); });
    attempt([&] { one.send(first[0], type, gpus.device(1)); });
    attempt([&] { other.receive(second[0], type, gpus.device(0)); });
    for (std::uint32_t i = 0; i < 3; ++i) {
      attempt([&] { static_cast<void>(one.read_one(first[i])); });
      attempt([&] { static_cast<void>(other.read_one(second[i])); });
    }
    for (const CudaClient* const client : {&one, &other}) attempt([&] { client->sync().get(); });
    if (!gpus.faulted()) {
      REQUIRE(!attempt.failed());
      break;
    }
    // Not those that had come so far: but from now on all.
    for (const CudaClient* const client : {&one, &other}) REQUIRE_THROWS_AS(client->sync().get(), ServerError);
  }
}

// NCCL does not reduce 16-bit integers, nor means of integers exactly: kernels of our own do, and none has a part in an
// operation of nothing.
TEST_CASE("L3: reductions of no elements end, whatever would have reduced them") {
  FakeGpus gpus;
  const ShortTimeout timeout;
  const CudaClient one = gpus.client(0);
  const CudaClient other = gpus.client(1);
  warm_up(one, other);
  using enum ReduceOperation;
  for (const auto& [element, operation] :
       {std::pair{ElementType::I16, Sum}, std::pair{ElementType::U16, Max}, std::pair{ElementType::I32, Mean}}) {
    for (const CudaClient* const client : {&one, &other}) {
      const Handle from = client->empty(0);
      const Handle to = client->empty(0);
      client->all_reduce(from, to, element, both(), operation);
      client->reduce(from, to, element, both(), operation, gpus.device(0));
      client->reduce_scatter(from, to, element, both(), operation);
      client->collective_group(both(), [&](CollectiveGroup& group) {
        group.reduce(from, to, element, operation, FakeGpus::device(1));
        group.reduce_scatter(from, to, element, operation);
      });
      client->sync_collective();
    }
    for (const CudaClient* const client : {&one, &other}) {
      auto done = client->sync();
      REQUIRE(done.wait_for(std::chrono::seconds(10)));
      done.get();
    }
  }
  CHECK(exchange(one, other).summed);
}
