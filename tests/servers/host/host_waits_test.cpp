// L10 on the threads of a host device that run user code: kernels and completion handlers.

#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

using namespace cox::test;
using namespace std::chrono_literals;
using cox::CallError;
using cox::CubeCount;
using cox::CubeDim;
using cox::Handle;
using cox::HostClient;
using cox::HostKernel;
using cox::KernelArguments;
using Kind = CallError::Kind;

namespace {

constexpr auto never = 20s;

/// What `f()` gets as a kernel of the client's stream; nothing if it throws no CallError.
std::optional<Kind> in_kernel(const HostClient& client, std::function<void()> f) {
  auto told = std::make_shared<std::promise<std::optional<Kind>>>();
  auto answer = told->get_future();
  client.launch(
      HostKernel("waits", CubeDim::single(), 0,
                 [told, f = std::move(f)](const cox::KernelContext&) { told->set_value(kind_of<CallError>(f)); }),
      CubeCount::single(), {});
  if (answer.wait_for(never) != std::future_status::ready) FAIL("the kernel waits for its own device");
  const auto kind = answer.get();
  client.sync().get();
  return kind;
}

}  // namespace

TEST_CASE("L10: a host kernel that waits for its own device gets would_deadlock") {
  OpenHost host;
  const HostClient client = host.client();
  const Handle data = client.create(cox::Bytes::copy_of(std::vector<std::byte>(64)));
  CHECK(in_kernel(client, [&] { (void)client.read_one(data); }) == Kind::WouldDeadlock);
  CHECK(in_kernel(client, [&] { client.sync().get(); }) == Kind::WouldDeadlock);
  CHECK(in_kernel(client, [&] { (void)client.sync().wait_for(1h); }) == Kind::WouldDeadlock);
  CHECK(in_kernel(client, [&] { cox::shutdown(host.device()); }) == Kind::WouldDeadlock);
  CHECK(client.read_one(data).size() == 64);
}

TEST_CASE("L10: a host kernel may call its own device thread, take what is complete, and wait for another device") {
  OpenHost host;
  OpenHost second({}, 1);
  const HostClient client = host.client();
  const Handle there = second.client().create(cox::Bytes::copy_of(std::vector<std::byte>(64)));
  CHECK(in_kernel(client, [&] { client.flush(); }) == std::nullopt);
  auto complete = client.sync();
  complete.wait();
  CHECK(in_kernel(client, [&] { complete.get(); }) == std::nullopt);
  CHECK(in_kernel(client, [&] { (void)second.client().read_one(there); }) == std::nullopt);
  CHECK(in_kernel(client, [&] { (void)second.client().sync().get(); }) == std::nullopt);
}

TEST_CASE("L10: a host kernel and a task of another device that wait for each other: one gets would_deadlock") {
  OpenHost host;
  OpenHost second({}, 1);
  Gate gate;
  std::optional<Kind> from_kernel;
  host.client().launch(
      gate.kernel(
          0, [&](const cox::KernelContext&) { from_kernel = kind_of<CallError>([&] { second.client().flush(); }); }),
      CubeCount::single(), {});
  gate.wait_until_entered();
  std::promise<std::optional<Kind>> from_task;
  std::promise<void> in_task;
  second.client().device_handle().submit([&](cox::HostServer&) {
    in_task.set_value();
    from_task.set_value(kind_of<CallError>([&] { host.client().sync().get(); }));
  });
  in_task.get_future().wait();
  gate.open();
  auto answer = from_task.get_future();
  REQUIRE(answer.wait_for(never) == std::future_status::ready);
  const auto task = answer.get();
  host.client().sync().get();
  CHECK((task == Kind::WouldDeadlock) != (from_kernel == Kind::WouldDeadlock));
}

TEST_CASE("L10: a completion handler that shuts its own device down gets would_deadlock") {
  OpenHost host;
  std::promise<std::optional<Kind>> told;
  host.client().sync(
      [&](const std::exception_ptr&) { told.set_value(kind_of<CallError>([&] { cox::shutdown(host.device()); })); });
  auto answer = told.get_future();
  REQUIRE(answer.wait_for(never) == std::future_status::ready);
  CHECK(answer.get() == Kind::WouldDeadlock);
  host.client().sync().get();
}

TEST_CASE(
    "L10: a completion handler that waits for a device whose task shuts the handler's device down: one is refused") {
  OpenHost host;
  OpenHost second({}, 1);
  std::promise<void> in_handler;
  std::promise<void> in_task;
  auto task_runs = in_task.get_future().share();
  std::promise<std::optional<Kind>> from_handler;
  host.client().sync([&](const std::exception_ptr&) {
    in_handler.set_value();
    task_runs.wait();
    from_handler.set_value(kind_of<CallError>([&] { second.client().flush(); }));
  });
  in_handler.get_future().wait();
  std::promise<std::optional<Kind>> from_task;
  second.client().device_handle().submit([&](cox::HostServer&) {
    in_task.set_value();
    from_task.set_value(kind_of<CallError>([&] { cox::shutdown(host.device(), never); }));
  });
  auto handler = from_handler.get_future();
  auto task = from_task.get_future();
  REQUIRE(handler.wait_for(never / 2) == std::future_status::ready);
  REQUIRE(task.wait_for(never / 2) == std::future_status::ready);
  CHECK((handler.get() == Kind::WouldDeadlock) != (task.get() == Kind::WouldDeadlock));
}

TEST_CASE("L10: a completion handler may wait for its own device") {
  OpenHost host;
  std::promise<std::optional<Kind>> told;
  host.client().sync([&](const std::exception_ptr&) {
    told.set_value(kind_of<CallError>([&] {
      host.client().flush();
      host.client().sync().get();
      (void)host.client().read_one(host.client().create(cox::Bytes::copy_of(std::vector<std::byte>(8))));
    }));
  });
  auto answer = told.get_future();
  REQUIRE(answer.wait_for(never) == std::future_status::ready);
  CHECK(answer.get() == std::nullopt);
}

TEST_CASE("L4: a token gets what the call is refused with, and a coroutine catches it at its co_await") {
  OpenHost host;
  const HostClient client = host.client();
  const Handle data = client.create(cox::Bytes::copy_of(std::vector<std::byte>(64)));
  cox::shutdown(host.device());
  std::promise<std::optional<Kind>> told;
  const auto caller = std::this_thread::get_id();
  std::thread::id where;
  client.sync([&](const std::exception_ptr& error) {
    where = std::this_thread::get_id();
    told.set_value(kind_of<CallError>([&] { std::rethrow_exception(error); }));
  });
  CHECK(told.get_future().get() == Kind::Closed);
  CHECK(where != caller);
  boost::asio::io_context context;
  std::optional<Kind> of_sync;
  std::optional<Kind> of_read;
  boost::asio::co_spawn(
      context,
      [&]() -> boost::asio::awaitable<void> {
        try {
          co_await client.sync(boost::asio::use_awaitable);
        } catch (const CallError& error) {
          of_sync = error.kind();
        }
        try {
          co_await client.read_async({&data, 1}, boost::asio::use_awaitable);
        } catch (const CallError& error) {
          of_read = error.kind();
        }
      },
      boost::asio::detached);
  context.run();
  CHECK(of_sync == Kind::Closed);
  CHECK(of_read == Kind::Closed);
}

TEST_CASE("exclusive of a client takes options") {
  OpenHost host;
  bool ran = false;
  CHECK(kind_of<CallError>([&] {
          host.client().exclusive([&] { ran = true; }, {.deadline = std::chrono::steady_clock::now() - 1s});
        }) == Kind::Expired);
  CHECK_FALSE(ran);
  CHECK(host.client().exclusive([] { return 3; }, {.label = "three"}) == 3);
}
