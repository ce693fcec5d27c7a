#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/error/server_operation.hpp>
#include <coxswain/runtime/error/stream_error.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>

#include <array>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace cox::test;
using cox::Bytes;
using cox::Handle;
using cox::IoError;
using cox::LaunchError;
using cox::MemoryLayoutDescriptor;
using cox::ServerError;
using cox::ServerOperation;
using cox::StreamErrorMode;

namespace {

template <class Client>
std::optional<ServerError::Kind> met(const Client& client) {
  return kind_of<ServerError>([&] { client.sync().get(); });
}

/// A stream with something of everything on it.
template <class Backend>
struct Scene {
  using Client = typename Backend::Client;

  explicit Scene(Client on) : client(std::move(on)) {
    client.graph_prepare();
    client.graph_start_capture();
    launch(client, Backend::fill(data, 7));
    graph.emplace(client.graph_stop_capture());
  }
  Client client;
  Handle data = upload(client, {1, 2});
  std::optional<cox::Graph<Client>> graph;
};

template <class Backend>
struct Operation {
  const char* name;
  ServerOperation operation;
  void (*call)(const Scene<Backend>&);
};

template <class Backend>
constexpr std::array operations{
    Operation<Backend>{"read", ServerOperation::Read, [](const Scene<Backend>& s) { (void)s.client.read_one(s.data); }},
    Operation<Backend>{"read_async", ServerOperation::Read,
                       [](const Scene<Backend>& s) { (void)s.client.read_async(std::vector<Handle>{s.data}).get(); }},
    Operation<Backend>{
        "read_one_tensor", ServerOperation::Read,
        [](const Scene<Backend>& s) { (void)s.client.read_one_tensor(s.data.copy_descriptor({2}, {1}, 4)); }},
    Operation<Backend>{"read_lazy", ServerOperation::Read,
                       [](const Scene<Backend>& s) { (void)s.client.read_lazy(s.data).copy(); }},
    Operation<Backend>{"flush", ServerOperation::Flush, [](const Scene<Backend>& s) { s.client.flush(); }},
    Operation<Backend>{"sync", ServerOperation::Sync, [](const Scene<Backend>& s) { s.client.sync().get(); }},
    Operation<Backend>{"graph_prepare", ServerOperation::GraphPrepare,
                       [](const Scene<Backend>& s) { s.client.graph_prepare(); }},
    Operation<Backend>{"memory_usage", ServerOperation::MemoryUsage,
                       [](const Scene<Backend>& s) { (void)s.client.memory_usage(); }},
    Operation<Backend>{"memory_report", ServerOperation::MemoryReport,
                       [](const Scene<Backend>& s) { (void)s.client.memory_report(); }},
    Operation<Backend>{"launch", ServerOperation::Launch,
                       [](const Scene<Backend>& s) { launch(s.client, Backend::misused().with_count({0, 1, 1})); }},
    Operation<Backend>{"launch of cubes", ServerOperation::Launch,
                       [](const Scene<Backend>& s) { launch(s.client, Backend::fill(s.data, 5)); }},
    Operation<Backend>{"write", ServerOperation::Write,
                       [](const Scene<Backend>& s) { s.client.write(s.data, Bytes::zeroed(8)); }},
    Operation<Backend>{"create", ServerOperation::InitializeMemory,
                       [](const Scene<Backend>& s) { (void)upload(s.client, {1}); }},
    Operation<Backend>{"staging", ServerOperation::Staging,
                       [](const Scene<Backend>& s) { (void)s.client.reserve_staging(std::array{std::size_t{8}}); }},
    Operation<Backend>{"get_resource", ServerOperation::GetResource,
                       [](const Scene<Backend>& s) { (void)s.client.get_resource(s.data); }},
    Operation<Backend>{"replay", ServerOperation::Replay, [](const Scene<Backend>& s) { s.graph->replay(); }},
    Operation<Backend>{"memory_cleanup", ServerOperation::MemoryCleanup,
                       [](const Scene<Backend>& s) { s.client.memory_cleanup(); }},
};

/// The failures of queued work that are told while this lives.
class Told {
 public:
  Told() {
    cox::set_stream_error_callback([this](const cox::StreamError& error) {
      const std::lock_guard lock(mutex_);
      errors_.push_back(error);
    });
  }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;
  ~Told() { cox::set_stream_error_callback({}); }

  [[nodiscard]] std::vector<cox::StreamError> get() {
    const std::lock_guard lock(mutex_);
    return errors_;
  }

 private:
  std::mutex mutex_;
  std::vector<cox::StreamError> errors_;
};

}  // namespace

TEMPLATE_TEST_CASE(
    "L12: what meets the device throws the stream's failures and takes them, what looks is refused, work goes on", "",
    COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  for (const Operation<TestType>& row : operations<TestType>) {
    INFO(row.name);
    const Scene<TestType> scene(device.on_new_stream());
    const StreamErrorMode mode = cox::stream_error_mode(row.operation);
    launch(scene.client, TestType::misused());
    const auto thrown = kind_of<ServerError>([&] { row.call(scene); });
    CHECK(thrown == (mode == StreamErrorMode::Ignore ? std::nullopt : std::optional(ServerError::Kind::Unhealthy)));
    // Refused twice as well: only who takes them ends it.
    if (mode == StreamErrorMode::Refuse)
      CHECK(kind_of<ServerError>([&] { row.call(scene); }) == ServerError::Kind::Unhealthy);
    CHECK(met(scene.client) ==
          (mode == StreamErrorMode::Take ? std::nullopt : std::optional(ServerError::Kind::Unhealthy)));
    row.call(scene);  // healthy now
  }
}

TEMPLATE_TEST_CASE("L12: the start of a capture takes the stream's failures, and the capture can be started then", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  client.graph_prepare();
  launch(client, TestType::fail_after_submit(client));
  launch(client, TestType::misused());
  CHECK(kind_of<ServerError>([&] { client.graph_start_capture(); }) == ServerError::Kind::Unhealthy);
  CHECK(kind_of<ServerError>([&] { (void)client.graph_stop_capture(); }) ==
        ServerError::Kind::Graph);  // none has begun
}

TEMPLATE_TEST_CASE("L12: work that follows a failure is done, on the stream that failed", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const Scene<TestType> scene(device.on_new_stream());
  const auto& client = scene.client;
  launch(client, TestType::misused());
  client.write(scene.data, Bytes::copy_of(std::vector<std::uint32_t>{5, 6}));
  const Handle made = upload(client, {8});
  const Handle copied = client.empty(8);
  launch(client, TestType::copy(scene.data, copied));
  scene.graph->replay();
  CHECK(met(client) == ServerError::Kind::Unhealthy);
  CHECK(numbers(client.read_one(copied)) == std::vector<std::uint32_t>{5, 6});
  CHECK(numbers(client.read_one(made)) == std::vector<std::uint32_t>{8});
  CHECK(numbers(client.read_one(scene.data)) == std::vector<std::uint32_t>{7, 7});
}

TEMPLATE_TEST_CASE("L12: failures are told in the order of the stream, not in that of their discovery", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  typename TestType::Gate gate(client);
  launch(client, gate.hold());
  launch(client, TestType::fail_after_submit(client));
  gate.wait_until_entered();
  launch(client, TestType::misused());
  CHECK(kind_of<ServerError>([&] { (void)client.memory_usage(); }) == ServerError::Kind::Unhealthy);  // it is found
  auto done = client.sync();
  launch(client, TestType::fail_after_submit(client));  // behind who asks
  gate.open();
  try {
    done.get();
    FAIL("two failures were not told");
  } catch (const ServerError& error) {
    REQUIRE(error.errors().size() == 2);
    CHECK(kind_in<LaunchError>(error.cause()) == TestType::late_kind);
    CHECK(kind_in<LaunchError>(error.errors()[0]) == TestType::late_kind);
    CHECK(kind_in<LaunchError>(error.errors()[1]) == LaunchError::Kind::ArgumentCount);
    CHECK(mentions(error.what(), {TestType::late_text}));
  }
  CHECK(met(client) == ServerError::Kind::Unhealthy);
  CHECK_FALSE(met(client));
}

TEMPLATE_TEST_CASE("L12: every failure of queued work is told once, at once, with its place", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto first = device.on_new_stream();
  const auto second = device.on_new_stream();
  Told told;
  const std::uint64_t before = cox::stream_error_count();
  launch(first, TestType::fail_after_submit(first));
  CHECK(met(first) == ServerError::Kind::Unhealthy);
  launch(second, TestType::misused());
  second.write(second.empty(4), Bytes::zeroed(3));
  CHECK(kind_of<ServerError>([&] { (void)second.memory_usage(); }) == ServerError::Kind::Unhealthy);
  const auto errors = told.get();
  REQUIRE(errors.size() == 3);
  CHECK(cox::stream_error_count() == before + 3);
  CHECK(errors[0].location.device == device.device());
  CHECK(errors[0].location.stream == first.stream_id());
  CHECK(kind_in<LaunchError>(errors[0].error) == TestType::late_kind);
  CHECK(errors[1].location.stream == second.stream_id());
  CHECK(kind_in<LaunchError>(errors[1].error) == LaunchError::Kind::ArgumentCount);
  CHECK(errors[2].location.stream == second.stream_id());
  CHECK(kind_in<IoError>(errors[2].error) == IoError::Kind::SizeMismatch);
  CHECK(met(second) == ServerError::Kind::Unhealthy);  // who is told takes nothing
  CHECK(told.get().size() == 3);                       // and who takes tells nobody
}

TEMPLATE_TEST_CASE(
    "L12: every use of a handle whose allocation failed carries the cause, also of one tensor of several", "",
    COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  constexpr std::size_t capacity = TestType::min_memory;
  OpenDevice<TestType> device({.memory = capacity, .threads = 1});
  const auto& client = device.client();
  const Handle kept = client.empty(capacity / 4);
  const auto tensors = client.empty_tensors(
      {MemoryLayoutDescriptor::contiguous({capacity / 2}, 1), MemoryLayoutDescriptor::optimized({2, capacity / 4}, 1)});
  CHECK(met(client) == ServerError::Kind::Unhealthy);
  const auto carries_cause = [](const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const IoError& used) {
      return used.kind() == IoError::Kind::AllocationFailed &&
             kind_in<IoError>(used.cause()) == IoError::Kind::OutOfMemory;
    }
  };
  const auto cause_of = [&](auto f) {
    try {
      f();
    } catch (const ServerError& error) {
      return error.cause();
    } catch (...) {
      return std::current_exception();
    }
    return std::exception_ptr();
  };
  for (const auto& tensor : tensors) {
    CHECK(carries_cause(cause_of([&] { (void)client.read_one(tensor.memory); })));
    CHECK(carries_cause(cause_of([&] { (void)client.read_lazy(tensor.memory).copy(); })));
    CHECK(carries_cause(cause_of([&] { (void)client.get_resource(tensor.memory); })));
    client.write(tensor.memory, Bytes::zeroed(tensor.memory.size_in_used()));
    CHECK(carries_cause(cause_of([&] { client.sync().get(); })));
    launch(client, TestType::fill(tensor.memory, 1));
    const auto launch = cause_of([&] { client.flush(); });
    CHECK(kind_in<LaunchError>(launch) == LaunchError::Kind::Io);
    try {
      std::rethrow_exception(launch);
    } catch (const LaunchError& error) {
      CHECK(carries_cause(error.cause()));
    }
  }
}

TEMPLATE_TEST_CASE("L12: failures that a dropped future would have thrown are thrown by the next blocking call", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = upload(client, {1, 2});
  const auto is_told_once = [&](const char* how, auto&& drop) {
    INFO(how);
    launch(client, TestType::misused());
    drop();
    CHECK(met(client) == ServerError::Kind::Unhealthy);
    CHECK_FALSE(met(client));
  };
  is_told_once("a sync", [&] { static_cast<void>(client.sync()); });
  is_told_once("a sync that has been waited for", [&] { client.sync().wait(); });
  is_told_once("a read", [&] { static_cast<void>(client.read_async(std::vector<Handle>{data})); });
  is_told_once("a read that has been waited for", [&] { client.read_async(std::vector<Handle>{data}).wait(); });
  is_told_once("several", [&] {
    auto first = client.sync();
    auto second = client.read_async(std::vector<Handle>{data});
    second.wait();
    first.wait();
  });
  {
    auto has_it = client.sync();
    launch(client, TestType::misused());
    has_it.get();
    has_it = client.sync();
    has_it.wait();
    client.sync().get();  // the other one has it
    CHECK(kind_of<ServerError>([&] { has_it.get(); }) == ServerError::Kind::Unhealthy);
    CHECK_FALSE(met(client));
  }
}

TEMPLATE_TEST_CASE("L12: what a dropped future held when its device ended is reported once", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  std::mutex mutex;
  std::vector<std::string> reported;
  cox::set_task_error_callback([&](const cox::TaskError& error) {
    const std::lock_guard lock(mutex);
    reported.push_back(cox::describe(error.error));
  });
  {
    std::optional<OpenDevice<TestType>> device(std::in_place);
    launch(device->client(), TestType::misused());
    auto held = device->client().sync();
    held.wait();
    device.reset();
    const std::lock_guard lock(mutex);
    CHECK(reported.empty());
  }
  cox::set_task_error_callback({});
  REQUIRE(reported.size() == 1);
  CHECK(mentions(reported[0], {"misused"}));
}
