// What devices say to each other, with the k-th allocation of one thread failing for k = 0, 1, ... until all passes:
// those of the client thread, of the device threads, and of the threads that run the streams. Whatever fails, all ranks
// are answered, and the devices serve on.

#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>
#include <coxswain/tests/support/want_of_memory.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/handle/recycled_memory.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

constexpr std::size_t count = 300;

/// Whose allocations fail: `Device` of the rank, `Streams` of all threads of the rank's device.
enum class Victim : std::uint8_t { Client, Device, Streams };

/// Two devices with one thread for the streams, which must be there for all attempts.
class Pair {
 public:
  Pair() {
    set_host_options({.device_count = 2, .threads_per_device = 1});
    for (std::uint16_t i = 0; i < 2; ++i) clients_[i] = HostClient::load(devices_[i]);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    shutdown_all();
    reset_host_options();
  }
  [[nodiscard]] const HostClient& operator[](std::size_t rank) const { return *clients_[rank]; }
  [[nodiscard]] const CommunicationId& all() const noexcept { return all_; }
  [[nodiscard]] DeviceId device(std::size_t rank) const noexcept { return devices_[rank]; }

 private:
  std::array<DeviceId, 2> devices_{DeviceId{.type = host_device_type, .index = 0},
                                   DeviceId{.type = host_device_type, .index = 1}};
  CommunicationId all_{devices_[0], devices_[1]};
  std::optional<HostClient> clients_[2];
};

void nothing(const Pair&, std::size_t, const Handle&, Handle&) {}

void all_reduce(const Pair& pair, std::size_t rank, const Handle& source, Handle& there) {
  pair[rank].all_reduce(source, there, ElementType::I32, pair.all());
}

/// What each rank asks for; `there` is its memory of the sum, or of what it receives. Only `call` meets the failure.
struct PairOperation {
  using Call = void (*)(const Pair& pair, std::size_t rank, const Handle& source, Handle& there);
  const char* name;
  Call before;
  Call call;
  Call after;
  bool transfers = false;
  bool alone = false;  ///< Rank 0 asks for both.
  bool fails = false;  ///< In any case.
};

constexpr std::array pair_operations{
    PairOperation{"all_reduce", nothing, all_reduce, nothing},
    PairOperation{"group", nothing,
                  [](const Pair& pair, std::size_t rank, const Handle& source, Handle& there) {
                    pair[rank].collective_group(pair.all(), [&](CollectiveGroup& group) {
                      group.barrier();
                      group.all_reduce(source, there, ElementType::I32);
                      group.barrier();
                    });
                  },
                  nothing},
    PairOperation{"ensure_init_collective", nothing,
                  [](const Pair& pair, std::size_t rank, const Handle&, Handle&) {
                    pair[rank].ensure_init_collective(pair.all());
                  },
                  all_reduce},
    PairOperation{"sync_collective", all_reduce,
                  [](const Pair& pair, std::size_t rank, const Handle&, Handle&) { pair[rank].sync_collective(); },
                  nothing},
    PairOperation{"send and receive", nothing,
                  [](const Pair& pair, std::size_t rank, const Handle& source, Handle& there) {
                    if (rank == 0) return pair[0].send(source, ElementType::I32, pair.device(1));
                    pair[1].receive(there, ElementType::I32, pair.device(0));
                  },
                  nothing, true},
    PairOperation{"to_client", nothing,
                  [](const Pair& pair, std::size_t, const Handle& source, Handle& there) {
                    there = pair[0].to_client(source, pair[1], ElementType::I32);
                  },
                  nothing, true, true},
    PairOperation{"mismatch", nothing,
                  [](const Pair& pair, std::size_t rank, const Handle& source, Handle& there) {
                    if (rank == 0) return all_reduce(pair, rank, source, there);
                    pair[rank].barrier(pair.all());
                  },
                  nothing, false, false, true},
};

/// The k-th allocation of that thread fails from here to end().
class Sabotage {
 public:
  Sabotage(Victim victim, const HostClient& client, int k) : victim_(victim), client_(client), k_(k) {
    if (victim_ == Victim::Streams) {
      client_.set_stream(StreamId::allocate());
      client_.launch(gate_.kernel(0, [k](const auto&) { begin(k); }), CubeCount::single(), {});
      gate_.wait_until_entered();
    }
    if (victim_ == Victim::Device) client_.device_handle().submit_blocking([k](HostServer&) { begin(k); });
    if (victim_ == Victim::Client) begin(k_);
  }
  Sabotage(const Sabotage&) = delete;
  Sabotage& operator=(const Sabotage&) = delete;
  /// What the victim's thread was asked for is done, or it is on its way to the streams.
  void called() {
    if (victim_ == Victim::Client) left_ = std::exchange(allocations_until_failure, -1);
    if (victim_ == Victim::Device)
      left_ = client_.device_handle().submit_blocking(
          [](HostServer&) { return std::exchange(allocations_until_failure, -1); });
    if (victim_ == Victim::Streams) gate_.open();
  }
  /// All has ended. What is left of k.
  [[nodiscard]] int end() {
    if (victim_ != Victim::Streams) return left_;
    std::promise<int> answer;
    client_.launch({"end", {}, 0, [&](const auto&) { answer.set_value(std::exchange(allocations_until_failure, -1)); }},
                   CubeCount::single(), {});
    return answer.get_future().get();
  }

 private:
  static void begin(int k) {
    detail::RecycledMemory::free_cached();  // with that it would not ask for memory
    allocations_until_failure = k;
  }

  Victim victim_;
  HostClient client_;
  int k_;
  Gate gate_;
  int left_ = 0;
};

void require_service(const Pair& pair) {
  pair[0].ensure_init_collective(pair.all());
  for (int i = 0; i < 2; ++i) {
    const Sum first(pair[0], pair.all(), count);
    const Sum second(pair[1], pair.all(), count);
    const Handle there = pair[0].to_client(first.source, pair[1], ElementType::I32);
    REQUIRE(first.right(pair[0]));
    REQUIRE(second.right(pair[1]));
    REQUIRE(read_soon(pair[1], there) == numbers_of(0, count));
  }
}

/// The operation with that one allocation of `rank` failing. Returns how many more there would have had to be for that;
/// negative if it came to that.
int survives(const Pair& pair, const PairOperation& operation, Victim victim, std::size_t rank, int k) {
  int left = 0;
  {
    std::array<Handle, 2> sources;
    std::array<Handle, 2> there;
    for (std::size_t i = 0; i < 2; ++i) {
      sources[i] = pair[i].create(Bytes::copy_of(numbers_of(i, count)));
      there[i] = pair[i].create(Bytes::copy_of(numbers_of(9, count)));
      get_soon(pair[i].sync());
    }
    const std::size_t other = 1 - rank;
    const auto ask = [&](PairOperation::Call call, std::size_t by) {
      const std::size_t caller = operation.alone ? 0 : by;
      call(pair, caller, sources[caller], there[operation.alone ? 1 : by]);
    };
    ask(operation.before, rank);
    Sabotage sabotage(victim, pair[rank], k);
    const std::exception_ptr refused = caught([&] { ask(operation.call, rank); });
    sabotage.called();
    REQUIRE((!refused || (victim == Victim::Client && is_want_of_memory(refused))));
    // Who was refused has not asked, so asks again: the other rank will wait for it.
    if (refused && !operation.alone) ask(operation.call, rank);
    ask(operation.after, rank);
    if (!operation.alone) {
      ask(operation.before, other);
      ask(operation.call, other);
      ask(operation.after, other);
    }
    const std::exception_ptr mine = caught([&] { settle(pair[rank]); });
    const std::exception_ptr others = caught([&] { settle(pair[other]); });
    left = sabotage.end();
    if (mine) static_cast<void>(caught([&] { settle(pair[rank]); }));  // what a sync had no memory to tell
    INFO("refused: " << (refused ? describe(refused) : "") << "; mine: " << (mine ? describe(mine) : "")
                     << "; others: " << (others ? describe(others) : ""));
    if (operation.fails) CHECK((mine && others));
    const Numbers expected = operation.transfers ? numbers_of(0, count) : sum_of(2, count);
    for (std::size_t i = operation.transfers ? 1 : 0; i < 2; ++i) {
      if (operation.alone && (refused || mine || others)) continue;  // there is no such memory then
      const bool poisoned = there[i].failure().has_value();
      const Numbers found = read_accepted(pair[i], there[i]);
      // It is right, or untouched, and whoever asked for it knows.
      const bool untouched = found == numbers_of(9, count) && (i == rank ? mine : others) != nullptr;
      // In a mismatch one of them has a barrier, which writes nothing.
      CHECK((poisoned ? untouched : found == expected || (operation.fails && untouched)));
    }
    if (!operation.fails) {
      if (left >= 0) CHECK_FALSE((mine || others || refused));
      if (mine) CHECK(is_want_of_memory(mine));
      if (others) CHECK(is_want_of_memory(others));
    }
  }
  require_service(pair);
  for (std::size_t i = 0; i < 2; ++i) {
    settle(pair[i]);
    REQUIRE(pair[i].memory_usage().number_allocs == 0);
  }
  return left;
}

/// Allocations that an attempt may need beyond the one before it.
constexpr int most_more = 60;

/// Of all operations and both ranks. `reopen`: each attempt opens devices and communicator anew. At least
/// four fifths of the allocations of a run without failures must have failed, and `at_least`: the number differs a
/// little between runs.
void all_allocations_may_fail(Victim victim, bool reopen, int at_least) {
  constexpr int never = 1'000'000;
  int failures = 0;
  int made = 0;
  for (const PairOperation& operation : pair_operations)
    for (std::size_t rank = 0; rank < 2; ++rank) {
      auto pair = std::make_unique<Pair>();
      int last = 0;
      const auto attempt = [&](int k) {
        if (reopen) {
          pair.reset();
          pair = std::make_unique<Pair>();
        }
        INFO(operation.name << " of rank " << rank << ", allocation " << k);
        return survives(*pair, operation, victim, rank, k);
      };
      for (int i = 0; i < 3; ++i) last = never - attempt(never);
      made += last;
      const long blocks = live_blocks();
      int k = 0;
      for (bool failed = true; failed; ++k) {
        failed = attempt(k) < 0;
        if (failed) ++failures;
        REQUIRE(k < last + most_more);
      }
      INFO(operation.name << ": blocks of host memory: " << blocks << " before, " << live_blocks() << " after");
      if (!reopen && victim != Victim::Streams) CHECK(live_blocks() <= blocks + 64);
    }
  INFO(failures << " allocations failed of " << made);
  CHECK(failures * 5 >= made * 4);
  CHECK(failures >= at_least);
}

}  // namespace

TEST_CASE("L10 L12: a collective whose client thread has no memory throws, and may be asked for again") {
  all_allocations_may_fail(Victim::Client, false, 20);
}
TEST_CASE("L10 L12: the same when its communicator is to be opened") {
  all_allocations_may_fail(Victim::Client, true, 250);  // all there are: 286, and 274 under the sanitizers
}

TEST_CASE("L10 L12: a collective whose device thread has no memory fails, and all ranks know") {
  all_allocations_may_fail(Victim::Device, false, 60);
}
TEST_CASE("L10 L12: the same with the first operation of a communicator") {
  all_allocations_may_fail(Victim::Device, true, 200);
}

TEST_CASE("L10 L12: a collective whose streams have no memory ends all the same") {
  all_allocations_may_fail(Victim::Streams, false, 3);
}
