// L14 on a host device: what a failed operation should have written is neither read nor computed with, whether or not
// the failure was known when the next operation was queued.

#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/servers/host/poison_helpers.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

using Values = std::vector<std::uint32_t>;

Handle on_device(const HostClient& client, const Values& values) { return client.create(Bytes::copy_of(values)); }
Values contents_of(const HostClient& client, const Handle& handle) {
  return client.read_one(handle).to_vector<std::uint32_t>();
}

/// Fails after it has written the first element.
HostKernel failing(std::size_t buffers = 1) {
  return {"failing", CubeDim::single(), buffers, [](const KernelContext& context) {
            context.buffer<std::uint32_t>(0)[0] = 666;
            fail_as_it_should(context);
          }};
}
/// Its last buffer becomes its first plus one.
HostKernel plus_one() {
  return {"plus_one", CubeDim::single(), 2, [](const KernelContext& context) {
            const auto from = context.buffer<const std::uint32_t>(0);
            const auto to = context.buffer<std::uint32_t>(1);
            for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i] + 1;
          }};
}
HostKernel fill(std::uint32_t value) {
  return {"fill", CubeDim::single(), 1, [value](const KernelContext& context) {
            for (auto& element : context.buffer<std::uint32_t>(0)) element = value;
          }};
}
KernelArguments one(const Handle& handle, Access access = Access::Write) {
  return KernelArguments{}.with_buffer(handle, access);
}
KernelArguments both(const Handle& from, const Handle& to, Access access = Access::Write) {
  return KernelArguments{}.with_buffer(from, Access::Read).with_buffer(to, access);
}
void launch(const HostClient& client, const HostKernel& kernel, KernelArguments arguments) {
  client.launch(kernel, CubeCount::single(), std::move(arguments));
}

struct OneDevice {
  OpenHost device;
  HostClient& client = device.client();
  HostClient other = device.on_new_stream();

  /// Four elements that a kernel has failed on; the failure has been delivered.
  Handle poisoned() {
    const Handle memory = on_device(client, {1, 2, 3, 4});
    launch(client, failing(), one(memory));
    REQUIRE(is_of_kernel(failure_of(client)));
    return memory;
  }
};

}  // namespace

TEST_CASE("L14: a kernel of another stream does not read what a failed kernel left, whenever that fails", "[poison]") {
  const auto moment = GENERATE(Moment::Before, Moment::Meanwhile, Moment::After);
  OneDevice f;
  for (int i = 0; i < 100; ++i) {
    const Handle memory = on_device(f.client, {1, 2, 3, 4});
    const Handle result = on_device(f.client, {5, 6, 7, 8});
    f.client.sync().get();
    Gate gate;
    launch(f.client, gate.kernel(1, fail_as_it_should), one(memory));
    gate.wait_until_entered();
    std::thread opener;
    if (moment == Moment::Before) {
      gate.open();
      REQUIRE(is_of_kernel(failure_of(f.client)));
    } else if (moment == Moment::Meanwhile) {
      opener = std::thread([&] { gate.open(); });
    }
    launch(f.other, plus_one(), both(memory, result));
    if (opener.joinable()) opener.join();
    if (moment == Moment::After) gate.open();

    REQUIRE(is_poisoned(failure_of(f.other)));
    REQUIRE(is_poisoned(read_failure(f.other, result)));
    REQUIRE(is_poisoned(read_failure(f.other, memory)));
    REQUIRE(failure_of(f.other) == nullptr);  // each failure was delivered once
    if (moment != Moment::Before) REQUIRE(is_of_kernel(failure_of(f.client)));
  }
}

TEST_CASE("L14: memory says why its contents are not to be used", "[poison]") {
  OneDevice f;
  const Handle memory = f.poisoned();
  const Handle result = on_device(f.client, {5, 6, 7, 8});
  CHECK_FALSE(result.failure());
  launch(f.client, plus_one(), both(memory, result));
  const std::exception_ptr refused = failure_of(f.client);
  REQUIRE(find_cause<LaunchError>(refused, LaunchError::Kind::Io) != nullptr);
  CHECK(mentions(describe(refused), {"plus_one", "was not run", "the first cause"}));

  const std::optional<MemoryFailure> first = memory.failure();
  REQUIRE(first);
  CHECK(is_of_kernel(first->cause));
  CHECK(first->contents == MemoryFailure::Contents::Undefined);
  const std::optional<MemoryFailure> second = result.failure();
  REQUIRE(second);
  CHECK(is_of_kernel(second->cause));
  CHECK(find_cause<IoError>(second->cause) == nullptr);  // the first cause itself
  CHECK(second->contents == MemoryFailure::Contents::Unchanged);

  f.client.accept(result);
  CHECK(contents_of(f.client, result) == Values{5, 6, 7, 8});
  CHECK_FALSE(result.failure());
  CHECK_FALSE(Handle().failure());
}

TEST_CASE("L14: what heals poisoned memory", "[poison]") {
  OneDevice f;
  const Handle memory = f.poisoned();
  SECTION("a whole write") {
    f.client.write(memory, Bytes::copy_of(Values{9, 9, 9, 9}));
    CHECK(contents_of(f.client, memory) == Values{9, 9, 9, 9});
  }
  SECTION("a kernel that overwrites all of it") {
    launch(f.client, fill(8), one(memory, Access::Overwrite));
    CHECK(contents_of(f.client, memory) == Values{8, 8, 8, 8});
  }
  SECTION("the caller's word") {
    f.client.accept(memory);
    CHECK(contents_of(f.client, memory) == Values{666, 2, 3, 4});
  }
  CHECK_FALSE(memory.failure());
  CHECK(failure_of(f.client) == nullptr);
}

TEST_CASE("L14: what does not heal poisoned memory", "[poison]") {
  OneDevice f;
  const Handle memory = f.poisoned();
  SECTION("a kernel that may read it, which is not run") {
    launch(f.client, fill(8), one(memory));
    CHECK(is_poisoned(failure_of(f.client)));
  }
  SECTION("a write of a part, which is done") {
    f.client.write(memory.offset_start(8), Bytes::copy_of(Values{9, 9}));
    CHECK(failure_of(f.client) == nullptr);
  }
  SECTION("a kernel that overwrites a part, which is run") {
    launch(f.client, fill(9), one(memory.offset_start(8), Access::Overwrite));
    CHECK(failure_of(f.client) == nullptr);
  }
  SECTION("a kernel that should overwrite all of it and fails") {
    launch(f.client,
           {"later", CubeDim::single(), 1, [](const KernelContext&) { throw std::runtime_error("a later cause"); }},
           one(memory, Access::Overwrite));
    CHECK(mentions(describe(failure_of(f.client)), {"a later cause"}));
  }
  REQUIRE(is_poisoned(read_failure(f.client, memory)));
  CHECK(is_poisoned(read_failure(f.client, memory.offset_end(8))));  // the unit is the allocation
}

TEST_CASE("L14: a part that is written to memory which was left unchanged makes it undefined", "[poison]") {
  OneDevice f;
  const Handle memory = f.poisoned();
  const Handle result = on_device(f.client, {5, 6, 7, 8});
  launch(f.client, plus_one(), both(memory, result));
  REQUIRE(is_poisoned(failure_of(f.client)));
  REQUIRE(result.failure()->contents == MemoryFailure::Contents::Unchanged);
  f.client.write(result.offset_start(8), Bytes::copy_of(Values{9, 9}));
  f.client.sync().get();
  CHECK(result.failure()->contents == MemoryFailure::Contents::Undefined);
}

TEST_CASE("L14: memory that was read before a kernel failed on it was good then", "[poison]") {
  OneDevice f;
  const Handle memory = on_device(f.client, {1, 2, 3, 4});
  const Handle result = on_device(f.client, {0, 0, 0, 0});
  Gate gate;
  launch(f.client, gate.kernel(0), {});
  launch(f.client, plus_one(), both(memory, result));
  auto before = f.client.read_async(std::vector<Handle>{memory});
  launch(f.client, failing(), one(memory));
  gate.open();
  CHECK(before.get()[0].to_vector<std::uint32_t>() == Values{1, 2, 3, 4});
  CHECK(is_of_kernel(failure_of(f.client)));
  CHECK(contents_of(f.client, result) == Values{2, 3, 4, 5});
}

TEST_CASE("L14: a launch that is refused poisons what it should have written, from its place on", "[poison]") {
  OneDevice f;
  const Handle memory = on_device(f.client, {1, 2, 3, 4});
  const Handle source = on_device(f.client, {5, 6, 7, 8});
  Gate gate;
  launch(f.other, gate.kernel(1), one(memory, Access::Read));  // holds up whatever writes the memory
  auto before = f.client.read_async(std::vector<Handle>{memory});
  launch(f.client, fill(1), both(source, memory));  // takes one buffer, and is given two
  gate.open();
  CHECK(before.get()[0].to_vector<std::uint32_t>() == Values{1, 2, 3, 4});
  const std::exception_ptr refused = failure_of(f.client);
  REQUIRE(find_cause<LaunchError>(refused, LaunchError::Kind::ArgumentCount) != nullptr);
  const std::exception_ptr error = read_failure(f.client, memory);
  CHECK(find_cause<IoError>(error, IoError::Kind::Poisoned) != nullptr);
  CHECK(find_cause<LaunchError>(error, LaunchError::Kind::ArgumentCount) != nullptr);
  REQUIRE(memory.failure());
  CHECK(memory.failure()->contents == MemoryFailure::Contents::Unchanged);
  CHECK(contents_of(f.client, source) == Values{5, 6, 7, 8});  // it was only to be read
}

TEST_CASE("L14: an upload that fails poisons its memory", "[poison]") {
  OneDevice f;
  const Handle memory = on_device(f.client, {1, 2, 3, 4});
  SECTION("since it is of another size") { f.client.write(memory, Bytes::copy_of(Values{1, 2, 3})); }
  SECTION("since its file is gone") { f.client.write(memory, Bytes::from_file("/nonexistent/file", 0, 16)); }
  CHECK(find_cause<IoError>(failure_of(f.client)) != nullptr);
  CHECK(find_cause<IoError>(read_failure(f.client, memory), IoError::Kind::Poisoned) != nullptr);
}

TEST_CASE("L14: memory that was dropped passes its poison on to what was queued before", "[poison]") {
  OneDevice f;
  for (int i = 0; i < 50; ++i) {
    const Handle result = on_device(f.client, {0, 0, 0, 0});
    Gate gate;
    launch(f.client, gate.kernel(0), {});
    {
      const Handle dropped = f.client.empty(16);
      launch(f.client, failing(), one(dropped));
      launch(f.client, plus_one(), both(dropped, result));
    }
    const Handle next = f.client.empty(16);  // where that was, as likely as not
    launch(f.client, fill(7), one(next));
    gate.open();
    CHECK(is_of_kernel(failure_of(f.client)));
    CHECK(is_poisoned(read_failure(f.client, result)));
    CHECK(contents_of(f.client, next) == Values{7, 7, 7, 7});
  }
}

TEST_CASE("L14: poison ends with the allocation", "[poison]") {
  OneDevice f;
  {
    const Handle dropped = f.poisoned();
  }
  for (int i = 0; i < 10; ++i) {
    const Handle next = f.client.empty(16);
    launch(f.client, fill(7), one(next));
    REQUIRE(contents_of(f.client, next) == Values{7, 7, 7, 7});
  }
}

TEST_CASE("L14: memory whose allocation failed says so", "[poison]") {
  OneDevice f;
  const Handle result = on_device(f.client, {1, 2, 3, 4});
  const Handle nothing = f.client.empty(std::size_t{1} << 60);
  launch(f.client, plus_one(), both(nothing, result));
  CHECK(failure_of(f.client) != nullptr);
  REQUIRE(nothing.failure());
  CHECK(find_cause<IoError>(nothing.failure()->cause, IoError::Kind::BufferTooBig) != nullptr);
  REQUIRE(result.failure());
  CHECK(kind_in<IoError>(result.failure()->cause) == IoError::Kind::BufferTooBig);  // the first cause
}

TEST_CASE("L14: a replay is one operation", "[poison]") {
  OneDevice f;
  HostClient& client = f.client;
  const Handle source = on_device(client, {1, 2, 3, 4});
  const Handle between = on_device(client, {0, 0, 0, 0});
  const Handle result = on_device(client, {0, 0, 0, 0});
  const auto fails = std::make_shared<bool>(false);
  const HostKernel may_fail("may_fail", CubeDim::single(), 2, [fails](const KernelContext& context) {
    if (*fails) fail_as_it_should(context);
    const auto from = context.buffer<const std::uint32_t>(0);
    const auto to = context.buffer<std::uint32_t>(1);
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i] + 1;
  });
  client.graph_prepare();
  client.graph_start_capture();
  launch(client, plus_one(), both(source, between, Access::Overwrite));
  launch(client, may_fail, both(between, result, Access::Overwrite));
  const auto graph = client.graph_stop_capture();
  graph.replay();
  REQUIRE(contents_of(client, result) == Values{3, 4, 5, 6});

  SECTION("that fails: all that it writes is poisoned, also by the steps before") {
    *fails = true;
    graph.replay();
    REQUIRE(is_of_kernel(failure_of(client)));
    CHECK(is_poisoned(read_failure(client, between)));
    CHECK(is_poisoned(read_failure(client, result)));
    CHECK(contents_of(client, source) == Values{1, 2, 3, 4});
    *fails = false;
    graph.replay();  // overwrites both
    CHECK(contents_of(client, between) == Values{2, 3, 4, 5});
    CHECK(contents_of(client, result) == Values{3, 4, 5, 6});
  }
  SECTION("that is refused, since what it reads is poisoned") {
    launch(client, failing(), one(source));
    graph.replay();
    REQUIRE(is_of_kernel(failure_of(client)));
    CHECK(is_poisoned(read_failure(client, result)));
    client.write(source, Bytes::copy_of(Values{5, 5, 5, 5}));
    graph.replay();
    CHECK(contents_of(client, result) == Values{7, 7, 7, 7});
  }
}

TEST_CASE("L14: memory in use by the caller is not handed out poisoned", "[poison]") {
  OneDevice f;
  const Handle memory = f.poisoned();
  CHECK(kind_of<IoError>([&] { static_cast<void>(f.client.get_resource(memory)); }) == IoError::Kind::Poisoned);
  f.client.accept(memory);
  f.client.sync().get();
  CHECK_NOTHROW(f.client.get_resource(memory));
}
