// L14 between host devices: a collective or a transfer that would read poisoned memory fails on every rank with the
// first cause, moves nothing, and leaves the communicator good.

#include <coxswain/collectives/communicator/gradient_buckets.hpp>
#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/servers/host/poison_helpers.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

bool reads_poison(const HostClient& client, const Handle& handle) { return is_poisoned(read_failure(client, handle)); }
bool is_rank_failure(const std::exception_ptr& error, DeviceId failed) {
  const auto* const found = find_cause<CollectiveError>(error, CollectiveError::Kind::RankFailed);
  return found != nullptr && is_of_kernel(error) &&
         mentions(found->what(), {failed.to_string(), "could not take part"});
}

/// A kernel fails on `memory` of that client, at that moment of `queue()`.
void fail_around(const HostClient& client, const Handle& memory, Moment moment, const std::function<void()>& queue) {
  Gate gate;
  client.launch(gate.kernel(1, fail_as_it_should), CubeCount::single(), KernelArguments{}.with_buffer(memory));
  gate.wait_until_entered();
  std::thread opener;
  if (moment == Moment::Before) {
    gate.open();
    REQUIRE(is_of_kernel(failure_of(client)));
  } else if (moment == Moment::Meanwhile) {
    opener = std::thread([&] { gate.open(); });
  }
  queue();
  if (opener.joinable()) opener.join();
  if (moment == Moment::After) gate.open();
}

#ifdef __SANITIZE_THREAD__
constexpr std::size_t small_stack = std::size_t{2} << 20U;  // the sanitizer's threads need more than 512 KiB
#else
constexpr std::size_t small_stack = std::size_t{256} << 10U;
#endif

/// Threads that are started while this exists have a stack of that size.
class SmallStacks {
 public:
  SmallStacks() {
    REQUIRE(::pthread_getattr_default_np(&before_) == 0);
    pthread_attr_t small = before_;
    REQUIRE(::pthread_attr_setstacksize(&small, small_stack) == 0);
    REQUIRE(::pthread_setattr_default_np(&small) == 0);
  }
  SmallStacks(const SmallStacks&) = delete;
  SmallStacks& operator=(const SmallStacks&) = delete;
  ~SmallStacks() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_{};
};

}  // namespace

// Each waits for the end of the one before it, since it writes the same memory by another rank.
TEST_CASE("Any number of refused operations of two communicators end one behind the other") {
  const SmallStacks small;
  HostFleet fleet(2);
  auto& client = fleet[0];
  const CommunicationId alone(std::vector{fleet.devices()[0]});
  const CommunicationId both(fleet.devices());
  const Handle data = to_device(client, numbers_of(0, 100));
  for (const CommunicationId& devices : {alone, both})
    client.abort_collective(devices, std::make_exception_ptr(std::runtime_error("enough")));
  Gate gate;
  client.launch(gate.kernel(1), CubeCount::single(), KernelArguments{}.with_buffer(data));
  gate.wait_until_entered();
  for (int i = 0; i < 10'000; ++i) client.all_reduce(data, data, ElementType::I32, i % 2 == 0 ? alone : both);
  reach(client);
  gate.open();
  CHECK(failure_of(client) != nullptr);
  CHECK(data.failure().has_value());
}

TEST_CASE("L14: gradient buckets do not reduce what a failed kernel left, and all ranks know the first cause",
          "[poison]") {
  const auto moment = GENERATE(Moment::Before, Moment::Meanwhile, Moment::After);
  constexpr std::size_t count = 100;
  HostFleet fleet(2);
  const std::vector<Gradient> model(2, {.bytes = count * sizeof(float), .type = ElementType::F32});
  std::vector<std::unique_ptr<GradientBuckets<HostClient>>> buckets;
  std::vector<std::vector<Handle>> gradients(2);
  fleet.for_each([&](std::size_t rank, auto& client) {
    buckets.push_back(
        std::make_unique<GradientBuckets<HostClient>>(client, fleet.devices(), model, ReduceOperation::Sum));
    for (std::size_t i = 0; i < 2; ++i) gradients[rank].push_back(to_device(client, std::vector<float>(count, 1.0F)));
  });
  std::vector<Future<void>> reduced;
  fail_around(fleet[1], gradients[1][0], moment, [&] {
    fleet.for_each([&](std::size_t rank, auto&) {
      for (std::size_t i = 0; i < 2; ++i) buckets[rank]->add(i, gradients[rank][i]);
      reduced.push_back(buckets[rank]->finish());
    });
  });
  fleet.for_each([&](std::size_t rank, auto& client) {
    std::exception_ptr failure;
    try {
      get_soon(std::move(reduced[rank]));
    } catch (...) {
      failure = std::current_exception();
    }
    REQUIRE(is_rank_failure(failure, fleet.devices()[1]));
    static_cast<void>(failure_of(client));  // that of the kernel itself
    REQUIRE(reads_poison(client, gradients[rank][0]));
  });
}

TEST_CASE("L14: a collective that was refused poisons its destinations, behind what was queued before", "[poison]") {
  HostFleet fleet(2);
  const CommunicationId all(fleet.devices());
  std::vector<Handle> results;
  fleet.for_each([&](std::size_t rank, auto& client) { results.push_back(to_device(client, numbers_of(rank, 10))); });
  HostFleet::Hold hold;
  hold.launch(fleet[0]);
  auto before = fleet[0].read_async(std::vector<Handle>{results[0]});
  fleet[0].all_reduce(results[0], results[0], ElementType::I32, all);
  fleet[1].all_reduce(results[1], results[1], ElementType::F32, all);  // not the same
  hold.open();
  REQUIRE(get_soon(std::move(before))[0].to_vector<std::int32_t>() == numbers_of(0, 10));
  fleet.for_each([&](std::size_t rank, auto& client) {
    REQUIRE(find_cause<CollectiveError>(failure_of(client), CollectiveError::Kind::Mismatch) != nullptr);
    const std::exception_ptr error = read_failure(client, results[rank]);
    REQUIRE(find_cause<IoError>(error, IoError::Kind::Poisoned) != nullptr);
    REQUIRE(find_cause<CollectiveError>(error, CollectiveError::Kind::Mismatch) != nullptr);
    client.accept(results[rank]);
    REQUIRE(read_soon(client, results[rank]) == numbers_of(rank, 10));
  });
}

TEST_CASE("L14: of several ranks that cannot take part the first is named on all of them", "[poison]") {
  HostFleet fleet(4);
  const CommunicationId all(fleet.devices());
  for (int i = 0; i < 20; ++i) {
    std::vector<Handle> results;
    fleet.for_each([&](std::size_t rank, auto& client) { results.push_back(to_device(client, numbers_of(rank, 10))); });
    for (const std::size_t rank : {3U, 1U, 2U})
      fleet[rank].launch({"failing", CubeDim::single(), 1, fail_as_it_should}, CubeCount::single(),
                         KernelArguments{}.with_buffer(results[rank]));
    fleet.for_each([&](std::size_t rank, auto& client) {
      client.all_reduce(results[rank], results[rank], ElementType::I32, all);
    });
    fleet.for_each(
        [&](std::size_t, auto& client) { REQUIRE(is_rank_failure(failure_of(client), fleet.devices()[1])); });
  }
}
