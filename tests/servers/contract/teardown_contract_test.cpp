#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>

#include <chrono>
#include <filesystem>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace cox::test;
using cox::Bytes;
using cox::CallError;
using cox::Handle;
using cox::IoError;

namespace {

template <class Backend>
constexpr cox::DeviceId device{.type = Backend::device_type, .index = 0};

std::set<std::string> threads_of_process() {
  std::set<std::string> ids;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    ids.insert(thread.path().filename().string());
  }
  return ids;
}

// Those of now that were not there before. The system lists a thread for a moment after it was joined: waits up to 10 s
// for them to go.
std::set<std::string> threads_started_since(const std::set<std::string>& before) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (true) {
    std::set<std::string> started = threads_of_process();
    std::erase_if(started, [&](const std::string& id) { return before.contains(id); });
    if (started.empty() || std::chrono::steady_clock::now() > deadline) return started;
    std::this_thread::yield();
  }
}

}  // namespace

TEMPLATE_TEST_CASE(
    "L13: a shutdown runs what was queued, then the device can be opened again, and its threads are gone", "",
    COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  const auto warm = TestType::Client::load(device<TestType>);  // whatever the process starts once is started
  cox::shutdown(device<TestType>);
  const std::set<std::string> before = threads_of_process();
  cox::Future<std::vector<Bytes>> contents;
  std::promise<void> handled;
  {
    const auto client = TestType::Client::load(device<TestType>);
    const Handle data = upload(client, {1});
    for (int i = 0; i < 100; ++i) launch(client, TestType::multiply_add(data, 1, 1));
    contents = client.read_async(std::vector<Handle>{data});
    client.sync([&](std::exception_ptr) { handled.set_value(); });
    REQUIRE(cox::shutdown(device<TestType>) == cox::ShutdownOutcome::Drained);
  }
  REQUIRE(numbers(contents.get()[0]) == std::vector<std::uint32_t>{101});
  handled.get_future().get();
  if (TestType::threads_are_counted) REQUIRE(threads_started_since(before).empty());
  const auto again = TestType::Client::load(device<TestType>);
  REQUIRE(again.memory_usage() == cox::MemoryUsage{});
  REQUIRE(numbers(again.read_one(upload(again, {2}))) == std::vector<std::uint32_t>{2});
  cox::shutdown(device<TestType>);
}

TEMPLATE_TEST_CASE("L13: handles from before a shutdown are harmless, and refused afterwards as what they are", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  const auto first = TestType::Client::load(device<TestType>);
  const Handle old = upload(first, {1});
  cox::shutdown(device<TestType>);
  REQUIRE(kind_of<CallError>([&] { (void)first.read_one(old); }) == CallError::Kind::Closed);
  REQUIRE(kind_of<CallError>([&] { (void)first.empty(4); }) == CallError::Kind::Closed);
  const auto second = TestType::Client::load(device<TestType>);
  REQUIRE(kind_of<IoError>([&] { (void)second.read_one(old); }) == IoError::Kind::StaleHandle);
  REQUIRE(
      mentions(message_of([&] { (void)second.read_one(old); }), {device<TestType>.to_string(), "before a shutdown"}));
  cox::shutdown(device<TestType>);
}

TEMPLATE_TEST_CASE("L12: failures that nobody came to ask for are reported when the device is closed", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  std::vector<std::string> reported;
  cox::set_task_error_callback([&](const cox::TaskError& task) { reported.push_back(cox::describe(task.error)); });
  {
    const auto client = TestType::Client::load(device<TestType>);
    launch(client, TestType::misused());
    cox::shutdown(device<TestType>);
  }
  cox::set_task_error_callback({});
  REQUIRE(reported.size() == 1);
  REQUIRE(mentions(reported[0], {"unhealthy", "kernel 'misused'"}));
}

TEMPLATE_TEST_CASE("Streams of client threads that have ended do not pile up work or memory", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  for (int i = 0; i < 3000; ++i) {
    const auto client = device.on_new_stream();
    const Handle data = upload(client, {1});
    launch(client, TestType::fill(data, 2));
    if (i % 500 == 0) {
      REQUIRE(numbers(device.client().read_one(data)) == std::vector<std::uint32_t>{2});
    }
  }
}
