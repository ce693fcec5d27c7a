#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/call_error.hpp>
#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/runtime/io_error.hpp>

#include <filesystem>
#include <future>
#include <iterator>
#include <string>
#include <vector>

using namespace cox::test;
using cox::Bytes;
using cox::CallError;
using cox::CubeCount;
using cox::Handle;
using cox::HostClient;
using cox::IoError;
using cox::KernelArguments;

namespace {

constexpr cox::DeviceId device{.type = 0, .index = 0};

std::size_t thread_count() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator()));
}

}  // namespace

TEST_CASE("L13: a shutdown runs what was queued, then the device can be opened again, and its threads are gone") {
  const HostClient warm = HostClient::load(device);  // whatever the process starts once is started
  cox::shutdown(device);
  const std::size_t before = thread_count();
  cox::Future<std::vector<Bytes>> contents;
  std::promise<void> handled;
  {
    const HostClient client = HostClient::load(device);
    const Handle data = upload(client, {1});
    for (int i = 0; i < 100; ++i)
      client.launch(multiply_add(), CubeCount::single(),
                    KernelArguments{}.with_buffer(data).with_scalar(std::uint32_t{1}).with_scalar(std::uint32_t{1}));
    contents = client.read_async(std::vector<Handle>{data});
    client.sync([&](std::exception_ptr) { handled.set_value(); });
    REQUIRE(cox::shutdown(device) == cox::ShutdownOutcome::Drained);
  }
  REQUIRE(numbers(contents.get()[0]) == std::vector<std::uint32_t>{101});
  handled.get_future().get();
  REQUIRE(thread_count() == before);
  const HostClient again = HostClient::load(device);
  REQUIRE(again.memory_usage() == cox::MemoryUsage{});
  REQUIRE(numbers(again.read_one(upload(again, {2}))) == std::vector<std::uint32_t>{2});
  cox::shutdown(device);
}

TEST_CASE("L13: handles from before a shutdown are harmless, and refused afterwards as what they are") {
  const HostClient first = HostClient::load(device);
  const Handle old = upload(first, {1});
  cox::shutdown(device);
  REQUIRE(kind_of<CallError>([&] { (void)first.read_one(old); }) == CallError::Kind::Closed);
  REQUIRE(kind_of<CallError>([&] { (void)first.empty(4); }) == CallError::Kind::Closed);
  const HostClient second = HostClient::load(device);
  REQUIRE(kind_of<IoError>([&] { (void)second.read_one(old); }) == IoError::Kind::StaleHandle);
  REQUIRE(
      mentions(message_of([&] { (void)second.read_one(old); }), {"DeviceId(type=0, index=0)", "before a shutdown"}));
  cox::shutdown(device);
}

TEST_CASE("L12: failures that nobody came to ask for are reported when the device is closed") {
  std::vector<std::string> reported;
  cox::set_task_error_callback([&](const cox::TaskError& task) { reported.push_back(cox::describe(task.error)); });
  {
    const HostClient client = HostClient::load(device);
    client.launch({"forgotten", {}, 1, [](const cox::KernelContext&) {}}, CubeCount::single(), {});
    cox::shutdown(device);
  }
  cox::set_task_error_callback({});
  REQUIRE(reported.size() == 1);
  REQUIRE(mentions(reported[0], {"unhealthy", "kernel 'forgotten'"}));
}

TEST_CASE("Streams of client threads that have ended do not pile up work or memory") {
  OpenHost host;
  for (int i = 0; i < 3000; ++i) {
    const HostClient client = host.on_new_stream();
    const Handle data = upload(client, {1});
    client.launch(fill_kernel(), CubeCount::single(),
                  KernelArguments{}.with_buffer(data).with_scalar(std::uint32_t{2}));
    if (i % 500 == 0) {
      REQUIRE(numbers(host.client().read_one(data)) == std::vector<std::uint32_t>{2});
    }
  }
}
