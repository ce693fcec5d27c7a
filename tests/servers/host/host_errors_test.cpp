#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/call_error.hpp>
#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/runtime/io_error.hpp>
#include <coxswain/runtime/launch_error.hpp>
#include <coxswain/runtime/server_error.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace cox::test;
using cox::Bytes;
using cox::CallError;
using cox::CubeCount;
using cox::CubeDim;
using cox::Handle;
using cox::HostClient;
using cox::HostKernel;
using cox::IoError;
using cox::KernelArguments;
using cox::LaunchError;
using cox::ServerError;

namespace {

/// What sync() finds on the client's stream; nothing if it is healthy.
std::optional<ServerError> unhealthy(const HostClient& client) {
  try {
    client.sync().get();
  } catch (const ServerError& error) {
    return error;
  }
  return std::nullopt;
}

template <class E>
std::optional<typename E::Kind> kind(const std::exception_ptr& error) {
  return kind_of<E>([&] { std::rethrow_exception(error); });
}

/// The one LaunchError that launching leaves on the stream.
LaunchError launch_failure(const HostClient& client, HostKernel kernel, CubeCount count,
                           KernelArguments arguments = {}) {
  client.launch(std::move(kernel), std::move(count), std::move(arguments));
  const auto error = unhealthy(client);
  REQUIRE(error);
  REQUIRE(error->kind() == ServerError::Kind::Unhealthy);
  REQUIRE(error->errors().size() == 1);
  try {
    std::rethrow_exception(error->errors().front());
  } catch (const LaunchError& launch) {
    return launch;
  }
}

HostKernel named(CubeDim dim, std::size_t buffers, HostKernel::Function function = [](const cox::KernelContext&) {}) {
  return {"k", dim, buffers, std::move(function)};
}

}  // namespace

TEST_CASE("An unknown device is refused by name") {
  cox::set_host_device_count(2);
  const auto load = [](std::uint16_t type, std::uint16_t index) {
    return [=] { (void)HostClient::load({.type = type, .index = index}); };
  };
  REQUIRE(kind_of<CallError>(load(0, 2)) == CallError::Kind::UnknownDevice);
  REQUIRE(mentions(message_of(load(0, 2)), {"DeviceId(type=0, index=2)", "2 host devices"}));
  REQUIRE(kind_of<CallError>(load(1, 0)) == CallError::Kind::UnknownDevice);
  cox::reset_host_options();
}

TEST_CASE("Arguments that cannot be right are refused by the call itself, and nothing is queued") {
  OpenHost host;
  const HostClient& client = host.client();
  const auto io = [](auto f) { return kind_of<IoError>(f); };
  REQUIRE(io([&] { (void)client.create_tensor(Bytes::zeroed(23), {2, 3}, 4); }) == IoError::Kind::SizeMismatch);
  REQUIRE(mentions(message_of([&] { (void)client.create_tensor(Bytes::zeroed(23), {2, 3}, 4); }),
                   {"[2, 3]", "needs 24 B", "23 B were given"}));
  REQUIRE(io([&] { (void)client.create_tensor(Bytes::zeroed(24), {2, 3}, 0); }) == IoError::Kind::ElementSize);
  REQUIRE(io([&] { (void)client.empty_tensor({SIZE_MAX, 2}, 4); }) == IoError::Kind::BufferTooBig);
  REQUIRE_FALSE(unhealthy(client));
}

TEST_CASE("L12: out of memory surfaces with its figures, and a handle of a failed allocation carries the cause") {
  OpenHost host({.device_count = 1, .threads_per_device = 1, .memory_capacity = 4096});
  const HostClient& client = host.client();
  const Handle most = client.empty(3000);
  const Handle failed = client.create(Bytes::zeroed(2000));
  const auto error = unhealthy(client);
  REQUIRE(error);
  REQUIRE(error->errors().size() == 1);
  REQUIRE(kind<IoError>(error->cause()) == IoError::Kind::OutOfMemory);
  REQUIRE(mentions(error->what(), {"DeviceId(type=0, index=0)", "2000 B", "3072 B", "4096 B"}));

  try {
    (void)client.read_one(failed);
    FAIL("read what was never allocated");
  } catch (const IoError& used) {
    REQUIRE(used.kind() == IoError::Kind::AllocationFailed);
    REQUIRE(kind<IoError>(used.cause()) == IoError::Kind::OutOfMemory);
  }
  const LaunchError launch =
      launch_failure(client, named({}, 1), CubeCount::single(), KernelArguments{}.with_buffer(failed));
  REQUIRE(launch.kind() == LaunchError::Kind::Io);
  REQUIRE(kind<IoError>(launch.cause()) == IoError::Kind::AllocationFailed);
  (void)client.empty(5000);
  REQUIRE(kind<IoError>(unhealthy(client)->cause()) == IoError::Kind::BufferTooBig);
  REQUIRE(client.read_one(most).size() == 3000);
}

TEST_CASE("L12: failures of a stream surface once, all of them, first cause first, at read, flush and sync") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle data = upload(client, {1});
  const auto fail_twice = [&] {
    client.launch(named({}, 3), CubeCount::single(), {});
    client.write(data, Bytes::zeroed(3));
  };
  const auto require_both = [](const ServerError& error) {
    REQUIRE(error.kind() == ServerError::Kind::Unhealthy);
    REQUIRE(error.errors().size() == 2);
    REQUIRE(kind<LaunchError>(error.cause()) == LaunchError::Kind::ArgumentCount);
    REQUIRE(kind<IoError>(error.errors()[1]) == IoError::Kind::SizeMismatch);
    REQUIRE(mentions(cox::describe(error.errors()[1]), {"needs 4 B", "3 B were given", "stream"}));
  };
  fail_twice();
  REQUIRE(kind_of<ServerError>([&] { (void)client.memory_usage(); }) == ServerError::Kind::Unhealthy);
  require_both(*unhealthy(client));
  REQUIRE_FALSE(unhealthy(client));
  fail_twice();
  REQUIRE_THROWS_AS(client.read_one(data), ServerError);
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

TEST_CASE("A stream's failures are its own") {
  OpenHost host;
  const HostClient other = host.on_new_stream();
  other.launch(named({}, 1), CubeCount::single(), {});
  REQUIRE_FALSE(unhealthy(host.client()));
  REQUIRE(unhealthy(other));
}

TEST_CASE("A read takes the failures of what was queued before it, not of what came later") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle data = upload(client, {1});
  Gate gate;
  client.launch(gate.kernel(0), CubeCount::single(), {});
  auto before = client.read_async(std::vector<Handle>{data});
  client.launch(named({}, 1), CubeCount::single(), {});
  auto after = client.sync();
  gate.open();
  REQUIRE(numbers(before.get()[0]) == std::vector<std::uint32_t>{1});
  REQUIRE_THROWS_AS(after.get(), ServerError);
}

TEST_CASE("L5: what a kernel throws becomes a LaunchError with cube and cause, and later work runs") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle data = upload(client, {0});
  client.launch(named({}, 1,
                      [](const cox::KernelContext& context) {
                        if (context.cube_index()[0] == 3) throw std::runtime_error("boom");
                      }),
                CubeCount::of_1d(5), KernelArguments{}.with_buffer(data));
  client.launch(fill_kernel(), CubeCount::single(), KernelArguments{}.with_buffer(data).with_scalar(std::uint32_t{6}));
  const auto error = unhealthy(client);
  REQUIRE(error);
  REQUIRE(mentions(error->what(), {"kernel 'k'", "DeviceId(type=0, index=0)", "cube (3, 0, 0)", "boom"}));
  REQUIRE(kind<LaunchError>(error->cause()) == LaunchError::Kind::KernelFailed);
  REQUIRE(numbers(client.read_one(data)) == std::vector<std::uint32_t>{6});
}

TEST_CASE("Access beyond a buffer fails the launch in checked mode") {
  OpenHost host;
  const HostClient& client = host.client();
  const auto error = launch_failure(
      client, named({}, 1, [](const cox::KernelContext& context) { context.buffer<std::uint32_t>(0)[4] = 1; }),
      CubeCount::single(), KernelArguments{}.with_buffer(upload(client, {1, 2, 3, 4})));
  REQUIRE(error.kind() == LaunchError::Kind::OutOfBounds);
  REQUIRE(mentions(error.what(), {"element 4 of buffer 0", "4 elements"}));
}

TEST_CASE("Launches that the device cannot do are refused with request and limit") {
  OpenHost host;
  const HostClient& client = host.client();
  const auto limit = [&](HostKernel kernel, CubeCount count, std::initializer_list<std::string_view> parts) {
    const LaunchError error = launch_failure(client, std::move(kernel), std::move(count));
    REQUIRE(error.kind() == LaunchError::Kind::TooManyResources);
    INFO(error.what());
    REQUIRE(mentions(error.what(), parts));
    return error;
  };
  limit(named({2048, 1, 1}, 0), CubeCount::single(), {"'k'", "stream", "cube dim", "(2048, 1, 1)", "(1024, 1024, 64)"});
  const auto units = limit(named({64, 64, 1}, 0), CubeCount::single(), {"units", "4096", "1024"});
  REQUIRE(units.limit()->resource == cox::ResourceLimit::Resource::UnitsPerCube);
  limit(named({}, 0), {1, 65536, 1}, {"cube count", "(1, 65536, 1)", "65535"});
  limit(named({}, 0), CubeCount::dynamic(upload(client, {1, 1, 70000})), {"cube count", "(1, 1, 70000)"});
  limit(named({0, 1, 1}, 0), CubeCount::single(), {"(0, 1, 1)", "no units"});
}

TEST_CASE("A kernel without a function, and with a wrong number of buffers, is refused by name") {
  OpenHost host;
  const HostClient& client = host.client();
  const LaunchError null = launch_failure(client, {"k", {}, 0, nullptr}, CubeCount::single());
  REQUIRE(null.kind() == LaunchError::Kind::NullFunction);
  REQUIRE(mentions(null.what(), {"'k'", "no function"}));
  const LaunchError count = launch_failure(client, named({}, 2), CubeCount::single());
  REQUIRE(count.kind() == LaunchError::Kind::ArgumentCount);
  REQUIRE(mentions(count.what(), {"takes 2 buffers", "given 0"}));
  const LaunchError small = launch_failure(client, named({}, 0), CubeCount::dynamic(upload(client, {1, 1})));
  REQUIRE(mentions(small.what(), {"needs 12 B", "8 B"}));
}

TEST_CASE("A handle of another device is refused by both names") {
  OpenHost here;
  OpenHost there({}, 1);
  const Handle foreign = upload(there.client(), {1});
  REQUIRE(kind_of<IoError>([&] { (void)here.client().read_one(foreign); }) == IoError::Kind::WrongDevice);
  REQUIRE(mentions(message_of([&] { (void)here.client().read_one(foreign); }),
                   {"DeviceId(type=0, index=1)", "DeviceId(type=0, index=0)"}));
  here.client().write(foreign, Bytes::zeroed(4));
  REQUIRE(kind<IoError>(unhealthy(here.client())->cause()) == IoError::Kind::WrongDevice);
}

TEST_CASE("A handle that was moved from is refused") {
  OpenHost host;
  Handle handle = upload(host.client(), {1});
  const Handle kept = std::move(handle);
  REQUIRE(
      kind_of<IoError>([&] { (void)host.client().read_one(handle); }) ==  // NOLINT(bugprone-use-after-move): the point
      IoError::Kind::NotFound);
}

TEST_CASE("Tensor reads with other shapes than the memory has are refused") {
  OpenHost host;
  const HostClient& client = host.client();
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

TEST_CASE("L10: a read inside a task of the same server is refused instead of waiting for itself") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle data = upload(client, {1});
  auto device = client.device_handle();
  const auto result = device.submit_blocking(
      [&](cox::HostServer&) { return kind_of<CallError>([&] { (void)client.read_one(data); }); });
  REQUIRE(result == CallError::Kind::WouldDeadlock);
  REQUIRE(numbers(client.exclusive([&] { return client.read_one(data); })) == std::vector<std::uint32_t>{1});
}

TEST_CASE("L10: a future of an operation queued behind its own waiter is refused, and can be had afterwards") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle data = upload(client, {1});
  cox::Future<void> done;
  cox::Future<std::vector<cox::Bytes>> read;
  client.device_handle().submit_blocking([&](cox::HostServer&) {
    done = client.sync();
    read = client.read_async(std::vector<Handle>{data});
    CHECK(kind_of<CallError>([&] { done.get(); }) == CallError::Kind::WouldDeadlock);
    CHECK(kind_of<CallError>([&] { (void)read.wait_for(std::chrono::hours(1)); }) == CallError::Kind::WouldDeadlock);
  });
  done.get();
  REQUIRE(numbers(read.get()[0]) == std::vector<std::uint32_t>{1});
  client.exclusive([&] { client.sync().get(); });
}

TEST_CASE("L10: two device threads that wait for futures of each other do not wait for ever") {
  OpenHost first({}, 0);
  OpenHost second({}, 1);
  std::atomic<int> inside{0};
  std::atomic<int> refused{0};
  const auto wait_for_other = [&](OpenHost& own, OpenHost& other) {
    own.client().device_handle().submit([&](cox::HostServer&) {
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

TEST_CASE("What a closure on the server throws joins the errors of its stream") {
  OpenHost host;
  auto device = host.client().device_handle();
  device.submit([](cox::HostServer&) { throw std::runtime_error("from a closure"); });
  REQUIRE(mentions(unhealthy(host.client())->what(), {"from a closure"}));
}

TEST_CASE("An error knows the line of the call that caused it") {
  OpenHost host;
  const HostClient& client = host.client();
  const auto line = std::source_location::current().line() + 1;
  client.launch(named({}, 1), CubeCount::single(), {});
  try {
    std::rethrow_exception(unhealthy(client)->cause());
  } catch (const LaunchError& error) {
    REQUIRE(error.site().line() == line);
  }
}
