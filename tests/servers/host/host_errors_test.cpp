#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <cstdint>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace cox::test;
using cox::Access;
using cox::CallError;
using cox::CubeCount;
using cox::CubeDim;
using cox::Handle;
using cox::HostClient;
using cox::HostKernel;
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
  REQUIRE(mentions(message_of(load(0, 2)), {"host:2", "2 host devices"}));
  REQUIRE(kind_of<CallError>(load(1, 0)) == CallError::Kind::UnknownDevice);
  cox::reset_host_options();
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
  client.launch(fill_kernel(), CubeCount::single(),
                KernelArguments{}.with_buffer(data, Access::Overwrite).with_scalar(std::uint32_t{6}));
  const auto error = unhealthy(client);
  REQUIRE(error);
  REQUIRE(mentions(error->what(), {"kernel 'k'", "host:0", "cube (3, 0, 0)", "boom"}));
  REQUIRE(kind<LaunchError>(error->cause()) == LaunchError::Kind::KernelFailed);
  REQUIRE(numbers(client.read_one(data)) == std::vector<std::uint32_t>{6});
}

TEST_CASE("L5: a launch that fails in a replay ends it, joins the stream's failures, and the next replay runs") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle data = upload(client, {0});
  const Handle behind = upload(client, {0});
  const Handle limit = upload(client, {1});
  const HostKernel fussy{"fussy", {}, 2, [](const cox::KernelContext& context) {
                           if (++context.buffer<std::uint32_t>(0)[0] == context.buffer<const std::uint32_t>(1)[0])
                             throw std::runtime_error("as it should");
                         }};
  client.graph_prepare();
  client.graph_start_capture();
  client.launch(fussy, CubeCount::single(), KernelArguments{}.with_buffer(data).with_buffer(limit, Access::Read));
  client.launch(copy_kernel(), CubeCount::single(),
                KernelArguments{}.with_buffer(data, Access::Read).with_buffer(behind));
  const auto graph = client.graph_stop_capture();
  graph.replay();
  try {
    client.sync().get();
    FAIL("the failure was not told");
  } catch (const ServerError& error) {
    CHECK(kind<LaunchError>(error.cause()) == LaunchError::Kind::KernelFailed);
  }
  client.accept(behind);
  client.accept(data);
  CHECK(numbers(client.read_one(behind)) == std::vector<std::uint32_t>{0});
  graph.replay();
  CHECK(numbers(client.read_one(behind)) == std::vector<std::uint32_t>{2});
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

TEST_CASE("A kernel without a function is refused by name") {
  OpenHost host;
  const LaunchError null = launch_failure(host.client(), {"k", {}, 0, nullptr}, CubeCount::single());
  REQUIRE(null.kind() == LaunchError::Kind::NullFunction);
  REQUIRE(mentions(null.what(), {"'k'", "no function"}));
}

TEST_CASE("A host kernel that is given a tensor map is refused, not run without it") {
  OpenHost host;
  const Handle memory = host.client().empty(256);
  cox::TensorMapDescriptor row{.shape = {64}, .format = cox::TensorMapTiled{.tile = {8}}};
  bool ran = false;
  auto kernel = named({1, 1, 1}, 0, [&](const cox::KernelContext&) { ran = true; });
  const LaunchError error = launch_failure(host.client(), std::move(kernel), CubeCount::of_1d(1),
                                           KernelArguments{}.with_tensor_map(memory, std::move(row)));
  CHECK(error.kind() == LaunchError::Kind::ArgumentType);
  CHECK(mentions(error.what(), {"kernel 'k'", "1 tensor maps"}));
  CHECK_FALSE(ran);
}

TEST_CASE("An error of a call names the line of the call") {
  OpenHost host;
  const auto& client = host.client();
  const auto line_of = [](auto&& call) -> std::uint32_t {
    try {
      call();
    } catch (const cox::Error& error) {
      CHECK(std::string(error.site().file_name()).ends_with("host_errors_test.cpp"));
      return error.site().line();
    }
    return 0;
  };
  const auto here = [](std::source_location site = std::source_location::current()) { return site.line(); };
  const Handle memory = client.empty(16);
  const cox::DeviceId own = client.device_id();
  CHECK(line_of([&] { (void)memory.offset_start(17); }) == here());
  CHECK(line_of([&] { (void)memory.offset_end(17); }) == here());
  CHECK(line_of([&] { (void)client.create_tensor(cox::Bytes::zeroed(23), {2, 3}, 4); }) == here());
  CHECK(line_of([&] { (void)client.empty_tensor({2, 3}, 0); }) == here());
  CHECK(line_of([&] { (void)cox::CommunicationId({own, own}); }) == here());
  CHECK(line_of([&] { client.barrier({own, own}); }) == here());
  CHECK(line_of([&] { client.barrier({own, {own.type, 999}}); }) == here());
  CHECK(line_of([&] { (void)HostClient::load({.type = 0, .index = 999}); }) == here());
  cox::shutdown(own);
  CHECK(line_of([&] { (void)client.empty(16); }) == here());
  CHECK(line_of([&] { client.flush(); }) == here());
  CHECK(line_of([&] { (void)client.memory_usage(); }) == here());
}
