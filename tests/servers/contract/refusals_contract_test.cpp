#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cox::test;
using cox::Bytes;
using cox::CallError;
using cox::CubeCount;
using cox::CubeDim;
using cox::Handle;
using cox::IoError;
using cox::LaunchError;
using cox::ServerError;

namespace {

/// What sync() finds on the client's stream; nothing if it is healthy.
template <class Client>
std::optional<ServerError> unhealthy(const Client& client) {
  try {
    client.sync().get();
  } catch (const ServerError& error) {
    return error;
  }
  return std::nullopt;
}

/// The one LaunchError that launching leaves on the stream.
template <class Client, class Work>
LaunchError launch_failure(const Client& client, Work work) {
  launch(client, std::move(work));
  const auto error = unhealthy(client);
  REQUIRE(error);
  REQUIRE(error->kind() == ServerError::Kind::Unhealthy);
  REQUIRE(error->errors().size() == 1);
  try {
    std::rethrow_exception(error->errors().front());
  } catch (const LaunchError& failure) {
    return failure;
  }
}

}  // namespace

TEMPLATE_TEST_CASE("A device that does not exist is refused by name", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  const DeviceOptions options{.devices = 2};
  TestType::set_options(options);
  const cox::DeviceId beyond{.type = TestType::device_type,
                             .index = static_cast<std::uint16_t>(TestType::device_count(options))};
  const auto load = [](cox::DeviceId device) { return [device] { (void)TestType::Client::load(device); }; };
  CHECK(kind_of<CallError>(load(beyond)) == CallError::Kind::UnknownDevice);
  CHECK(mentions(message_of(load(beyond)), {beyond.to_string(), std::to_string(beyond.index)}));
  CHECK(kind_of<CallError>(load({.type = 77, .index = 0})) == CallError::Kind::UnknownDevice);
  TestType::reset_options();
}

TEMPLATE_TEST_CASE("Arguments that cannot be right are refused by the call itself, and nothing is queued", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const auto io = [](auto f) { return kind_of<IoError>(f); };
  REQUIRE(io([&] { (void)client.create_tensor(Bytes::zeroed(23), {2, 3}, 4); }) == IoError::Kind::SizeMismatch);
  REQUIRE(mentions(message_of([&] { (void)client.create_tensor(Bytes::zeroed(23), {2, 3}, 4); }),
                   {"[2, 3]", "needs 24 B", "23 B were given"}));
  REQUIRE(io([&] { (void)client.create_tensor(Bytes::zeroed(24), {2, 3}, 0); }) == IoError::Kind::ElementSize);
  REQUIRE(io([&] { (void)client.empty_tensor({SIZE_MAX, 2}, 4); }) == IoError::Kind::BufferTooBig);
  REQUIRE_FALSE(unhealthy(client));
}

TEMPLATE_TEST_CASE(
    "L12: out of memory surfaces with its figures, and a handle of a failed allocation carries the cause", "",
    COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  constexpr std::size_t capacity = TestType::min_memory;
  OpenDevice<TestType> device({.memory = capacity, .threads = 1});
  const auto& client = device.client();
  constexpr std::size_t half = capacity / 2 - 48;
  const Handle most = client.empty(capacity / 4 * 3 - 72);
  const Handle failed = client.create(Bytes::zeroed(half));
  const auto error = unhealthy(client);
  REQUIRE(error);
  REQUIRE(error->errors().size() == 1);
  REQUIRE(kind_in<IoError>(error->cause()) == IoError::Kind::OutOfMemory);
  INFO(error->what());
  const auto bytes = [](std::size_t count) { return std::to_string(count) + " B"; };
  REQUIRE(mentions(error->what(), {device.name(), bytes(half), bytes(capacity / 4 * 3), bytes(capacity)}));

  try {
    (void)client.read_one(failed);
    FAIL("read what was never allocated");
  } catch (const IoError& used) {
    REQUIRE(used.kind() == IoError::Kind::AllocationFailed);
    REQUIRE(kind_in<IoError>(used.cause()) == IoError::Kind::OutOfMemory);
  }
  const LaunchError failure = launch_failure(client, TestType::fill(failed, 1));
  REQUIRE(failure.kind() == LaunchError::Kind::Io);
  REQUIRE(kind_in<IoError>(failure.cause()) == IoError::Kind::AllocationFailed);
  (void)client.empty(capacity + 904);
  REQUIRE(kind_in<IoError>(unhealthy(client)->cause()) == IoError::Kind::BufferTooBig);
  REQUIRE(client.read_one(most).size() == capacity / 4 * 3 - 72);
}

TEMPLATE_TEST_CASE("L12: failures of a stream surface once, all of them, first cause first, at read, flush and sync",
                   "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = upload(client, {1});
  const auto fail_twice = [&] {
    launch(client, TestType::misused());
    client.write(data, Bytes::zeroed(3));
  };
  const auto require_both = [](const ServerError& error) {
    REQUIRE(error.kind() == ServerError::Kind::Unhealthy);
    REQUIRE(error.errors().size() == 2);
    REQUIRE(kind_in<LaunchError>(error.cause()) == LaunchError::Kind::ArgumentCount);
    REQUIRE(kind_in<IoError>(error.errors()[1]) == IoError::Kind::SizeMismatch);
    REQUIRE(mentions(cox::describe(error.errors()[1]), {"needs 4 B", "3 B were given", "stream"}));
  };
  fail_twice();
  REQUIRE(kind_of<ServerError>([&] { (void)client.memory_usage(); }) == ServerError::Kind::Unhealthy);
  require_both(*unhealthy(client));
  REQUIRE_FALSE(unhealthy(client));
  fail_twice();
  REQUIRE_THROWS_AS(client.read_one(data), ServerError);
  client.accept(data);
  REQUIRE(numbers(client.read_one(data)) == std::vector<std::uint32_t>{1});
  fail_twice();
  try {
    client.flush();
    FAIL("flush was silent");
  } catch (const ServerError& error) {
    require_both(error);
  }
  client.flush();
}

TEMPLATE_TEST_CASE("A stream's failures are its own", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto other = device.on_new_stream();
  launch(other, TestType::misused());
  REQUIRE_FALSE(unhealthy(device.client()));
  REQUIRE(unhealthy(other));
}

TEMPLATE_TEST_CASE("A read takes the failures of what was queued before it, not of what came later", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = upload(client, {1});
  typename TestType::Gate gate(client);
  launch(client, gate.hold());
  auto before = client.read_async(std::vector<Handle>{data});
  launch(client, TestType::misused());
  auto after = client.sync();
  gate.open();
  REQUIRE(numbers(before.get()[0]) == std::vector<std::uint32_t>{1});
  REQUIRE_THROWS_AS(after.get(), ServerError);
}

TEMPLATE_TEST_CASE("Launches that the device cannot do are refused with request and limit", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const auto limit = [&](auto work, std::initializer_list<std::string_view> parts) {
    const LaunchError error = launch_failure(client, std::move(work));
    REQUIRE(error.kind() == LaunchError::Kind::TooManyResources);
    INFO(error.what());
    REQUIRE(mentions(error.what(), parts));
    return error;
  };
  limit(TestType::nothing({2048, 1, 1}), {"'nothing'", "stream", "cube dim", "(2048, 1, 1)", "(1024, 1024, 64)"});
  const auto units = limit(TestType::nothing({64, 64, 1}), {"units", "4096", "1024"});
  REQUIRE(units.limit()->resource == cox::ResourceLimit::Resource::UnitsPerCube);
  limit(TestType::nothing().with_count({1, 65536, 1}), {"cube count", "(1, 65536, 1)", "65535"});
  limit(TestType::nothing().with_count(CubeCount::dynamic(upload(client, {1, 1, 70000}))),
        {"cube count", "(1, 1, 70000)"});
  limit(TestType::nothing({0, 1, 1}), {"(0, 1, 1)", "no units"});
  auto crowded = TestType::nothing();
  const Handle buffer = upload(client, {1});
  for (std::uint32_t i = 0; i <= client.properties().hardware.max_bindings; ++i)
    std::move(crowded.arguments).with_buffer(buffer, cox::Access::Read);
  const auto buffers = limit(std::move(crowded), {"number of buffers", "1025 buffers", "1024 buffers"});
  REQUIRE(buffers.limit()->resource == cox::ResourceLimit::Resource::Buffers);
}

TEMPLATE_TEST_CASE("A wrong number of buffers, and a cube count that is none, are refused by name", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const LaunchError count = launch_failure(client, TestType::misused());
  REQUIRE(count.kind() == LaunchError::Kind::ArgumentCount);
  REQUIRE(mentions(count.what(), {"'misused'", "takes 3 buffers", "given 0"}));
  const LaunchError small =
      launch_failure(client, TestType::nothing().with_count(CubeCount::dynamic(upload(client, {1, 1}))));
  REQUIRE(mentions(small.what(), {"needs 12 B", "8 B"}));
}

TEMPLATE_TEST_CASE("A handle of another device is refused by both names", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> here;
  OpenDevice<HostBackend> there({}, TestType::elsewhere.index);
  const Handle foreign = upload(there.client(), {1});
  REQUIRE(kind_of<IoError>([&] { (void)here.client().read_one(foreign); }) == IoError::Kind::WrongDevice);
  REQUIRE(mentions(message_of([&] { (void)here.client().read_one(foreign); }), {there.name(), here.name()}));
  here.client().write(foreign, Bytes::zeroed(4));
  REQUIRE(kind_in<IoError>(unhealthy(here.client())->cause()) == IoError::Kind::WrongDevice);
}

TEMPLATE_TEST_CASE("A handle that was moved from is refused", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  Handle handle = upload(device.client(), {1});
  const Handle kept = std::move(handle);
  REQUIRE(kind_of<IoError>(
              [&] { (void)device.client().read_one(handle); }) ==  // NOLINT(bugprone-use-after-move): the point
          IoError::Kind::NotFound);
}

TEMPLATE_TEST_CASE("Tensor reads with other shapes than the memory has are refused", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const auto layout = client.create_tensor(Bytes::zeroed(60), {3, 5}, 4);
  const auto read = [&](cox::Shape shape, cox::Strides strides, std::size_t elem_size) {
    return kind_of<IoError>(
        [&] { (void)client.read_one_tensor(layout.memory.copy_descriptor(shape, strides, elem_size)); });
  };
  REQUIRE(read({3, 5}, {8, 1}, 4) == std::nullopt);
  REQUIRE(read({3, 5}, {8}, 4) == IoError::Kind::RankMismatch);
  REQUIRE(read({3, 5}, {1, 8}, 4) == IoError::Kind::UnsupportedStrides);
  REQUIRE(read({3, 5}, {8, 1}, 8) == IoError::Kind::OutOfBounds);
  REQUIRE(read({4, 5}, {8, 1}, 4) == IoError::Kind::OutOfBounds);
  REQUIRE_FALSE(unhealthy(client));
}

TEMPLATE_TEST_CASE("L10: a read inside a task of the same server is refused instead of waiting for itself", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = upload(client, {1});
  const auto result = client.device_handle().submit_blocking(
      [&](typename TestType::Server&) { return kind_of<CallError>([&] { (void)client.read_one(data); }); });
  REQUIRE(result == CallError::Kind::WouldDeadlock);
  REQUIRE(numbers(client.exclusive([&] { return client.read_one(data); })) == std::vector<std::uint32_t>{1});
}

TEMPLATE_TEST_CASE("L10: a future of an operation queued behind its own waiter is refused, and can be had afterwards",
                   "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = upload(client, {1});
  cox::Future<void> done;
  cox::Future<std::vector<cox::Bytes>> read;
  client.device_handle().submit_blocking([&](typename TestType::Server&) {
    done = client.sync();
    read = client.read_async(std::vector<Handle>{data});
    CHECK(kind_of<CallError>([&] { done.get(); }) == CallError::Kind::WouldDeadlock);
    CHECK(kind_of<CallError>([&] { (void)read.wait_for(std::chrono::hours(1)); }) == CallError::Kind::WouldDeadlock);
  });
  done.get();
  REQUIRE(numbers(read.get()[0]) == std::vector<std::uint32_t>{1});
  client.exclusive([&] { client.sync().get(); });
}

TEMPLATE_TEST_CASE("L10: two device threads that wait for futures of each other do not wait for ever", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> first;
  OpenDevice<HostBackend> second({}, TestType::elsewhere.index);
  std::atomic<int> inside{0};
  std::atomic<int> refused{0};
  const auto wait_for_other = [&](auto& own, auto& other) {
    own.client().device_handle().submit([&](auto&) {
      ++inside;
      while (inside < 2) std::this_thread::yield();
      cox::Future<void> done = other.client().sync();  // queued behind the other task
      if (kind_of<CallError>([&] { done.get(); })) ++refused;
    });
  };
  wait_for_other(first, second);
  wait_for_other(second, first);
  first.client().sync().get();
  second.client().sync().get();
  REQUIRE(refused == 1);
}

TEMPLATE_TEST_CASE("What a closure on the server throws joins the errors of its stream", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  device.client().device_handle().submit(
      [](typename TestType::Server&) { throw std::runtime_error("from a closure"); });
  REQUIRE(mentions(unhealthy(device.client())->what(), {"from a closure"}));
}

TEMPLATE_TEST_CASE("An error knows the line of the call that caused it", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const auto line = std::source_location::current().line() + 1;
  launch(client, TestType::misused());
  try {
    std::rethrow_exception(unhealthy(client)->cause());
  } catch (const LaunchError& error) {
    REQUIRE(error.site().line() == line);
  }
}
