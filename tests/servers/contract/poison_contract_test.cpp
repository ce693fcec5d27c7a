// L14 on one device of any kind: what a failed operation should have written is neither read nor computed with, whether
// or not the failure was known when the next operation was queued.

#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/handle/recycled_memory.hpp>
#include <coxswain/tests/servers/contract/poison_contract.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

using Values = std::vector<std::uint32_t>;

template <class Backend>
struct PoisonDevice {
  OpenDevice<Backend> device;
  typename Backend::Client& client = device.client();
  typename Backend::Client other = device.on_new_stream();

  /// Memory that a kernel has failed on; the failure has been delivered.
  Handle poisoned(const Values& values = {1, 2, 3, 4}) {
    const Handle memory = upload(client, values);
    launch(client, Backend::fail_on(client, memory));
    REQUIRE(is_late_failure<Backend>(next_failure(client)));
    return memory;
  }
  static bool is_poisoned(const std::exception_ptr& error) { return is_poisoned_by_late_failure<Backend>(error); }
};

/// The same launch with its only buffer declared as overwritten.
template <class Work>
Work overwriting(Work work, const Handle& data) {
  work.arguments = KernelArguments{}.with_buffer(data, Access::Overwrite).with_info(work.arguments.info());
  return work;
}

}  // namespace

TEMPLATE_TEST_CASE("L14: what a failed kernel left is not read on another stream, whenever that fails", "[poison]",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  const auto moment = GENERATE(FailureMoment::Before, FailureMoment::Meanwhile, FailureMoment::After);
  PoisonDevice<TestType> f;
  for (int i = 0; i < 20; ++i) {
    const Handle memory = upload(f.client, {1, 2, 3, 4});
    const Handle result = upload(f.client, {5, 6, 7, 8});
    const Handle further = upload(f.other, {5, 6, 7, 8});
    f.client.sync().get();
    fail_around<TestType>(f.client, memory, moment, [&] {
      launch(f.other, TestType::plus_one(memory, result));
      launch(f.other, TestType::plus_one(result, further));
    });
    REQUIRE(f.is_poisoned(next_failure(f.other)));
    for (const Handle& handle : {memory, result, further}) REQUIRE(f.is_poisoned(failure_of_read(f.other, handle)));
    REQUIRE(next_failure(f.other) == nullptr);  // each failure was delivered once
    if (moment != FailureMoment::Before) REQUIRE(is_late_failure<TestType>(next_failure(f.client)));
  }
}

TEMPLATE_TEST_CASE("L14: a read on another stream does not hand out what a failed kernel left, whenever that fails",
                   "[poison]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  const auto moment = GENERATE(FailureMoment::Before, FailureMoment::Meanwhile, FailureMoment::After);
  const std::size_t size = GENERATE(std::size_t{4}, std::size_t{1000}, std::size_t{3} << 20U);  // in three ways on GPUs
  PoisonDevice<TestType> f;
  const int rounds = size > 1000 ? 3 : 10;
  for (int i = 0; i < rounds; ++i) {
    const Handle memory = upload(f.client, Values(size, 1));
    f.client.sync().get();
    std::optional<Future<std::vector<Bytes>>> read;
    fail_around<TestType>(f.client, memory, moment,
                          [&] { read.emplace(f.other.read_async(std::vector<Handle>{memory})); });
    std::exception_ptr failure;
    try {
      static_cast<void>(get_soon(std::move(*read)));
    } catch (...) {
      failure = std::current_exception();
    }
    REQUIRE(f.is_poisoned(failure));
    if (moment != FailureMoment::Before) REQUIRE(is_late_failure<TestType>(next_failure(f.client)));
    f.client.write(memory, Bytes::copy_of(Values(size, 2)));  // by the threads that copy, if it is large
    REQUIRE(content(f.client, memory) == Values(size, 2));
  }
}

TEMPLATE_TEST_CASE("L14: memory says why its contents are not to be used, and is accepted as it is", "[poison]",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  PoisonDevice<TestType> f;
  const Handle memory = f.poisoned();
  const Handle result = upload(f.client, {5, 6, 7, 8});
  CHECK_FALSE(result.failure());
  launch(f.client, TestType::plus_one(memory, result));
  const std::exception_ptr refused = next_failure(f.client);
  REQUIRE(find_cause<LaunchError>(refused, LaunchError::Kind::Io) != nullptr);
  CHECK(mentions(describe(refused), {"plus_one", "was not run", TestType::late_text}));
  REQUIRE(memory.failure());
  CHECK(is_late_failure<TestType>(memory.failure()->cause));
  REQUIRE(result.failure());
  CHECK(is_late_failure<TestType>(result.failure()->cause));
  CHECK(find_cause<IoError>(result.failure()->cause) == nullptr);  // the first cause itself
  CHECK(result.failure()->contents == MemoryFailure::Contents::Unchanged);
  CHECK_THROWS_AS(f.client.get_resource(result), IoError);

  f.client.accept(result);
  CHECK(content(f.client, result) == Values{5, 6, 7, 8});
  CHECK_FALSE(result.failure());
}

TEMPLATE_TEST_CASE("L14: what heals poisoned memory, and what does not", "[poison]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  PoisonDevice<TestType> f;
  const Handle memory = f.poisoned();
  SECTION("a whole write") {
    f.client.write(memory, Bytes::copy_of(Values{9, 9, 9, 9}));
    CHECK(content(f.client, memory) == Values{9, 9, 9, 9});
    CHECK_FALSE(memory.failure());
  }
  SECTION("a kernel that overwrites all of it") {
    launch(f.client, overwriting(TestType::fill(memory, 8), memory));
    CHECK(content(f.client, memory) == Values{8, 8, 8, 8});
    CHECK_FALSE(memory.failure());
  }
  SECTION("not a kernel that may read it, which is not run") {
    launch(f.client, TestType::fill(memory, 8));
    CHECK(f.is_poisoned(next_failure(f.client)));
    CHECK(f.is_poisoned(failure_of_read(f.client, memory)));
  }
  SECTION("not a write of a part, which is done") {
    f.client.write(memory.offset_start(8), Bytes::copy_of(Values{9, 9}));
    CHECK(next_failure(f.client) == nullptr);
    CHECK(f.is_poisoned(failure_of_read(f.client, memory.offset_start(8))));  // the unit is the allocation
    CHECK(memory.failure()->contents == MemoryFailure::Contents::Undefined);
  }
  SECTION("not a kernel that overwrites a part, which is run") {
    const Handle part = memory.offset_start(8);
    launch(f.client, overwriting(TestType::fill(part, 9), part));
    CHECK(next_failure(f.client) == nullptr);
    CHECK(f.is_poisoned(failure_of_read(f.client, memory)));
  }
}

TEMPLATE_TEST_CASE("L14: what is refused before it is queued poisons its memory, from its place on", "[poison]",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  PoisonDevice<TestType> f;
  const Handle memory = upload(f.client, {1, 2, 3, 4});
  f.client.sync().get();
  typename TestType::Gate gate(f.other);
  launch(f.other, gate.hold(memory, Access::Read));  // holds up whatever writes the memory
  gate.wait_until_entered();
  auto before = f.client.read_async(std::vector<Handle>{memory});
  SECTION("a launch") { launch(f.client, TestType::misused_on(memory)); }
  SECTION("a write of another size") { f.client.write(memory, Bytes::copy_of(Values{1, 2, 3})); }
  SECTION("a write from a file that is gone") {
    f.client.write(memory, Bytes::from_file("/nonexistent/file", 0, 16));  // found when it is read
  }
  const Handle result = upload(f.client, {5, 6, 7, 8});
  launch(f.other, TestType::plus_one(memory, result));
  gate.open();
  CHECK(numbers(get_soon(std::move(before))[0]) == Values{1, 2, 3, 4});
  CHECK(next_failure(f.client) != nullptr);
  CHECK(find_cause<IoError>(next_failure(f.other), IoError::Kind::Poisoned) != nullptr);
  for (const Handle& handle : {memory, result})
    CHECK(find_cause<IoError>(failure_of_read(f.client, handle), IoError::Kind::Poisoned) != nullptr);
}

TEMPLATE_TEST_CASE("L14: a cube count of poisoned memory has the launch not run", "[poison]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  const auto moment = GENERATE(FailureMoment::Before, FailureMoment::Meanwhile, FailureMoment::After);
  PoisonDevice<TestType> f;
  for (int i = 0; i < 10; ++i) {
    const Handle count = upload(f.client, {1, 1, 1});
    const Handle memory = upload(f.other, {1, 2, 3, 4});
    f.client.sync().get();
    fail_around<TestType>(f.client, count, moment,
                          [&] { launch(f.other, TestType::fill(memory, 9).with_count(CubeCount::dynamic(count))); });
    REQUIRE(f.is_poisoned(next_failure(f.other)));
    REQUIRE(f.is_poisoned(failure_of_read(f.other, memory)));
    REQUIRE(memory.failure()->contents == MemoryFailure::Contents::Unchanged);
    if (moment != FailureMoment::Before) REQUIRE(is_late_failure<TestType>(next_failure(f.client)));
  }
}

TEMPLATE_TEST_CASE("L14: a replay neither reads nor hands out what a failed kernel left", "[poison]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  const auto moment = GENERATE(FailureMoment::Before, FailureMoment::Meanwhile, FailureMoment::After);
  PoisonDevice<TestType> f;
  const Handle memory = upload(f.client, {1, 2, 3, 4});
  const Handle between = upload(f.other, {0, 0, 0, 0});
  const Handle result = upload(f.other, {0, 0, 0, 0});
  f.client.sync().get();
  f.other.graph_prepare();
  launch(f.other, TestType::plus_one(memory, between));
  launch(f.other, TestType::plus_one(between, result));
  f.other.graph_start_capture();
  launch(f.other, TestType::plus_one(memory, between));
  launch(f.other, TestType::plus_one(between, result));
  const auto graph = f.other.graph_stop_capture();
  graph.replay();
  REQUIRE(content(f.other, result) == Values{3, 4, 5, 6});
  fail_around<TestType>(f.client, memory, moment, [&] { graph.replay(); });
  REQUIRE(f.is_poisoned(next_failure(f.other)));
  for (const Handle& handle : {memory, between, result}) REQUIRE(f.is_poisoned(failure_of_read(f.other, handle)));
  if (moment != FailureMoment::Before) REQUIRE(is_late_failure<TestType>(next_failure(f.client)));
  for (const Handle& handle : {memory, between, result}) f.other.write(handle, Bytes::copy_of(Values{5, 5, 5, 5}));
  graph.replay();
  REQUIRE(content(f.other, result) == Values{7, 7, 7, 7});
}

TEMPLATE_TEST_CASE("L14: a replay is one operation, also if there is no memory to queue all of it", "[poison]",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  int refused = 0;
  for (int k = 0;; ++k) {
    INFO("allocation " << k);
    REQUIRE(k < 1000);
    PoisonDevice<TestType> f;
    const auto& client = f.client;
    const Handle source = upload(client, {1, 2, 3, 4});
    const Handle between = upload(client, {0, 0, 0, 0});
    const Handle sum = upload(client, {7, 7, 7, 7});
    const Handle result = upload(client, {0, 0, 0, 0});
    const CommunicationId alone({client.device_id()});
    client.ensure_init_collective(alone);
    client.graph_prepare();
    launch(client, TestType::plus_one(source, between));
    client.graph_start_capture();
    launch(client, TestType::plus_one(source, between));
    client.all_reduce(sum, sum, ElementType::U32, alone);  // which ends a part of the graph
    launch(client, TestType::plus_one(between, result));
    const auto graph = client.graph_stop_capture();
    REQUIRE(content(client, between) == Values{2, 3, 4, 5});
    client.device_handle().submit_blocking([k](auto&) {
      detail::RecycledMemory::free_cached();
      allocations_until_failure = k;
    });
    graph.replay();
    const bool failed =
        client.device_handle().submit_blocking([](auto&) { return std::exchange(allocations_until_failure, -1) < 0; });
    const bool reported = next_failure(client) != nullptr;
    CHECK(reported == failed);
    if (between.failure() || result.failure()) {
      ++refused;
      for (const Handle& written : {between, result})
        CHECK(find_cause<IoError>(failure_of_read(client, written), IoError::Kind::Poisoned) != nullptr);
    } else {
      CHECK(content(client, between) == Values{2, 3, 4, 5});
      CHECK(content(client, result) == Values{3, 4, 5, 6});
    }
    if (failed) continue;
    CHECK(refused > 0);
    return;
  }
}

TEMPLATE_TEST_CASE("L14: memory that was dropped passes its poison on, and not to what has its place", "[poison]",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  PoisonDevice<TestType> f;
  for (int i = 0; i < 20; ++i) {
    const Handle result = upload(f.client, {0, 0, 0, 0});
    Handle next;
    {
      const Handle dropped = f.client.empty(16);
      fail_around<TestType>(f.client, dropped, FailureMoment::After,
                            [&] { launch(f.client, TestType::plus_one(dropped, result)); });
    }
    next = f.client.empty(16);  // where that was, as likely as not
    launch(f.client, TestType::fill(next, 7));
    CHECK(is_late_failure<TestType>(next_failure(f.client)));
    CHECK(f.is_poisoned(failure_of_read(f.client, result)));
    CHECK(content(f.client, next) == Values{7, 7, 7, 7});
  }
}
