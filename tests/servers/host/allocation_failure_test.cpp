// Every call, with its k-th allocation failing for k = 0, 1, ... until it passes: those of the client thread, those of
// the device thread, and those of the thread that runs the stream.

#include <coxswain/tests/runtime/counted_allocation.hpp>
#include <coxswain/tests/servers/host/client_operations.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>
#include <coxswain/tests/support/want_of_memory.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/handle/recycled_memory.hpp>
#include <coxswain/runtime/profile/open_profiles.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <optional>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

using namespace cox::test;
using cox::Bytes;
using cox::CubeCount;
using cox::Future;
using cox::Handle;
using cox::HostClient;
using cox::KernelArguments;

namespace {

/// Whose allocations fail.
enum class Victim : std::uint8_t { ClientThread, DeviceThread, StreamThread };

/// Lets the k-th allocation of a thread fail from begin() to end(). The stream's thread, of which there is one, is held
/// up meanwhile, if `hold`: then all work is queued before any of it runs.
class Sabotage {
 public:
  Sabotage(Victim victim, const HostClient& client, int k, bool hold)
      : victim_(victim), client_(client), k_(k), hold_(hold || victim == Victim::StreamThread) {}

  void hold() {
    if (!hold_) return;
    const int k = victim_ == Victim::StreamThread ? k_ : -1;
    client_.launch(gate_.kernel(0, [k](const auto&) { allocations_until_failure = k; }), CubeCount::single(), {});
    gate_.wait_until_entered();
  }
  void begin() {
    if (victim_ == Victim::ClientThread) allocations_until_failure = k_;
    if (victim_ == Victim::DeviceThread)
      client_.device_handle().submit_blocking([this](cox::HostServer&) { allocations_until_failure = k_; });
  }
  /// Returns whether it came to that.
  bool end() {
    bool failed = std::exchange(allocations_until_failure, -1) < 0;
    if (victim_ == Victim::ClientThread) {
      if (hold_) gate_.open();
      return failed;
    }
    if (victim_ == Victim::DeviceThread)
      failed = client_.device_handle().submit_blocking(
          [](cox::HostServer&) { return std::exchange(allocations_until_failure, -1) < 0; });
    if (victim_ == Victim::StreamThread) {
      std::promise<bool> answer;
      client_.launch(
          {"end", {}, 0, [&](const auto&) { answer.set_value(std::exchange(allocations_until_failure, -1) < 0); }},
          CubeCount::single(), {});
      gate_.open();
      return answer.get_future().get();
    }
    if (hold_) gate_.open();
    return failed;
  }

 private:
  Victim victim_;
  HostClient client_;
  int k_;
  bool hold_;
  Gate gate_;
};

/// Ten seconds are for ever.
template <class T>
T get_soon(Future<T> future) {
  if (!future.wait_for(std::chrono::seconds(10))) FAIL("a stream hangs");
  return future.get();
}

/// The device, on both streams, does what it should.
void require_service(const Scene& scene) {
  for (const HostClient* client : {&scene.client, &scene.other}) {
    const Handle fresh = upload(*client, before());
    client->launch(scene.kernel, CubeCount::of_1d(32), three_times_plus_one(fresh));
    const auto found = numbers(get_soon(scene.client.read_async(std::vector<Handle>{fresh}))[0]);
    REQUIRE(found[0] == 1);
    REQUIRE(found.back() == 3 * before().back() + 1);
  }
}

/// The operation with that one allocation failing. Returns whether it came to that.
bool survives(const Stage& stage, const Operation& operation, Victim victim, int k, bool hold) {
  AllocationCount uploads;
  bool failed = false;
  {
    const Scene scene(stage, victim == Victim::StreamThread);
    scene.client.sync().get();
    const auto raw = std::as_bytes(std::span(given()));
    Attempt attempt;
    attempt.upload = Bytes::from_allocation(CountedAllocation::of(uploads, {raw.begin(), raw.end()}));
    Sabotage sabotage(victim, hold ? stage.holder : scene.client, k, hold);
    sabotage.hold();
    if (hold)  // readers on other streams, all of which a writer has to wait for
      for (const HostClient& reader : stage.readers) (void)reader.read_async(std::vector<Handle>{scene.data});
    if (victim == Victim::StreamThread) {
      // The stream has to wait for another one, which is at its first piece when the thread comes back to this one.
      (void)scene.other.sync();
      scene.other.launch(
          scene.kernel, CubeCount::of_1d(32),
          KernelArguments{}.with_buffer(scene.data).with_scalar(std::uint32_t{1}).with_scalar(std::uint32_t{0}));
    }
    sabotage.begin();
    const std::exception_ptr refused = caught([&] { operation.call(scene, attempt); });
    failed = sabotage.end();

    // Nobody waits for work that was never queued.
    const std::exception_ptr elsewhere = caught([&] { get_soon(scene.other.sync()); });
    scene.other.accept(scene.data);
    const auto content = numbers(get_soon(scene.other.read_async(std::vector<Handle>{scene.data}))[0]);
    bool right = false;
    std::exception_ptr found = refused;
    if (!refused) found = caught([&] { right = operation.right(scene, attempt); });
    const std::exception_ptr left = caught([&] { get_soon(scene.client.sync()); });
    INFO("found: " << (found ? cox::describe(found) : "") << "; left: " << (left ? cox::describe(left) : ""));
    if (!failed) {
      CHECK(right);
      CHECK_FALSE(left);
      CHECK_FALSE(elsewhere);
    } else {
      // The caller, or the stream, says why it is not right (L12).
      CHECK((right || is_want_of_memory(found) || is_want_of_memory(left) || is_want_of_memory(elsewhere)));
      if (refused && victim == Victim::ClientThread) CHECK((content == before() && !left));
    }
    require_service(scene);
  }
  for (const HostClient& reader : stage.readers) reader.sync().get();
  stage.other.sync().get();
  stage.client.sync().get();
  REQUIRE(stage.client.memory_usage().number_allocs == 0);
  CHECK(uploads.made == 1);
  CHECK(uploads.released == 1);
  return failed;
}

/// Until it passes. Returns how many allocations it made.
int every_allocation_may_fail(const Operation& operation, Victim victim, bool hold) {
  const Stage stage;
  for (int i = 0; i < 3; ++i) (void)survives(stage, operation, victim, 1'000'000, hold);
  const long blocks = live_blocks();
  int k = 0;
  for (bool failed = true; failed; ++k) {
    INFO("allocation " << k);
    failed = survives(stage, operation, victim, k, hold);
    REQUIRE(k < 200);
  }
  INFO("blocks of host memory: " << blocks << " before, " << live_blocks() << " after");
  // A stream of its own for each attempt is forgotten later.
  if (victim != Victim::StreamThread) CHECK(live_blocks() <= blocks + 16);
  return k - 1;
}

/// Of all operations together there are `at_least` allocations on that thread, or nothing was tested.
void all_allocations_may_fail(Victim victim, bool hold, int at_least) {
  int failures = 0;
  for (const Operation& operation : operations) {
    if (operation.blocks && (hold || victim == Victim::StreamThread)) continue;
    INFO(operation.name);
    failures += every_allocation_may_fail(operation, victim, hold);
  }
  INFO(failures << " allocations failed");
  CHECK(failures >= at_least);
}

}  // namespace

TEST_CASE("L12 L13: a call whose client thread has no memory throws, and has done nothing") {
  all_allocations_may_fail(Victim::ClientThread, false, 10);
}

TEST_CASE("L12 L13: a call whose device thread has no memory fails, and the device serves on") {
  all_allocations_may_fail(Victim::DeviceThread, false, 10);
}

TEST_CASE("L12 L13: a call whose device thread has no memory holds nobody up, while all streams are busy") {
  all_allocations_may_fail(Victim::DeviceThread, true, 10);
}

TEST_CASE("L12 L13: a call whose stream has no memory fails, and the stream goes on") {
  all_allocations_may_fail(Victim::StreamThread, false, 3);
}

TEST_CASE("L7 L12: a profile that had no memory to begin is not open, and takes no failures of its stream") {
  OpenHost host;
  const HostClient& client = host.client();
  const cox::Caller caller{client.stream_id(), std::source_location::current()};
  // One more than may be open at a time.
  constexpr std::size_t attempts = cox::OpenProfiles<int>::default_capacity + 1;
  // Makes the k-th allocation of each attempt fail, until one attempt begins its profile. Returns the refused attempts.
  const auto refusals = [&](int k) {
    return client.device_handle().submit_blocking([&](cox::HostServer& server) {
      std::size_t refused = 0;
      for (; refused < attempts; ++refused) {
        cox::detail::RecycledMemory::free_cached();  // with that it would not ask for memory
        allocations_until_failure = k;
        std::optional<cox::ProfilingToken> token;
        const std::exception_ptr refusal = caught([&] { token = server.start_profile(caller); });
        allocations_until_failure = -1;
        if (token) (void)server.end_profile(*token, cox::ProfileFailures::OfProfile, caller);
        if (!is_want_of_memory(refusal)) break;
      }
      return refused;
    });
  };
  client.sync().get();  // the stream is there
  // A vector that has grown in one attempt need not in the next.
  constexpr std::size_t few = 16;
  int k = 0;
  std::size_t refused = attempts;
  for (; refused != 0; ++k) {
    refused = refusals(k);
    INFO("allocation " << k << " was refused " << refused << " times");
    CHECK((refused == attempts || refused <= few));
  }
  CHECK(k > 2);

  client.launch({"misused", {}, 3, [](const auto&) {}}, CubeCount::single(), {});
  CHECK_THROWS_AS(client.flush(), cox::ServerError);
}
