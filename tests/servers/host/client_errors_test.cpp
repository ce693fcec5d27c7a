#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/io_error.hpp>
#include <coxswain/runtime/launch_error.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>
#include <coxswain/runtime/server_error.hpp>
#include <coxswain/runtime/server_operation.hpp>
#include <coxswain/runtime/stream_error.hpp>

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
using cox::CubeCount;
using cox::Handle;
using cox::HostClient;
using cox::HostKernel;
using cox::IoError;
using cox::KernelArguments;
using cox::LaunchError;
using cox::MemoryLayoutDescriptor;
using cox::ServerError;
using cox::ServerOperation;
using cox::StreamErrorMode;

namespace {

template <class E>
std::optional<typename E::Kind> kind(const std::exception_ptr& error) {
  return kind_of<E>([&] { std::rethrow_exception(error); });
}

std::optional<ServerError::Kind> met(const HostClient& client) {
  return kind_of<ServerError>([&] { client.sync().get(); });
}

/// Found when it is queued: it takes a buffer, and is given none.
void fail_at_once(const HostClient& client) {
  client.launch({"early", {}, 1, [](const cox::KernelContext&) {}}, CubeCount::single(), {});
}

/// Found when it is its turn.
HostKernel throwing() {
  return {"late", {}, 0, [](const cox::KernelContext&) { throw std::runtime_error("as it should"); }};
}

using Graph = cox::Graph<HostClient>;

/// A stream with something of everything on it.
struct Scene {
  explicit Scene(HostClient on) : client(std::move(on)) {
    client.graph_prepare();
    client.graph_start_capture();
    client.launch(fill_kernel(), CubeCount::single(),
                  KernelArguments{}.with_buffer(data).with_scalar(std::uint32_t{7}));
    graph.emplace(client.graph_stop_capture());
  }
  HostClient client;
  Handle data = upload(client, {1, 2});
  std::optional<Graph> graph;
};

struct Operation {
  const char* name;
  ServerOperation operation;
  void (*call)(const Scene&);
};

constexpr std::array operations{
    Operation{"read", ServerOperation::Read, [](const Scene& s) { (void)s.client.read_one(s.data); }},
    Operation{"read_async", ServerOperation::Read,
              [](const Scene& s) { (void)s.client.read_async(std::vector<Handle>{s.data}).get(); }},
    Operation{"read_one_tensor", ServerOperation::Read,
              [](const Scene& s) { (void)s.client.read_one_tensor(s.data.copy_descriptor({2}, {1}, 4)); }},
    Operation{"read_lazy", ServerOperation::Read, [](const Scene& s) { (void)s.client.read_lazy(s.data).copy(); }},
    Operation{"flush", ServerOperation::Flush, [](const Scene& s) { s.client.flush(); }},
    Operation{"sync", ServerOperation::Sync, [](const Scene& s) { s.client.sync().get(); }},
    Operation{"graph_prepare", ServerOperation::GraphPrepare, [](const Scene& s) { s.client.graph_prepare(); }},
    Operation{"memory_usage", ServerOperation::MemoryUsage, [](const Scene& s) { (void)s.client.memory_usage(); }},
    Operation{"memory_report", ServerOperation::MemoryReport, [](const Scene& s) { (void)s.client.memory_report(); }},
    Operation{"launch", ServerOperation::Launch, [](const Scene& s) { s.client.launch(copy_kernel(), {0, 1, 1}, {}); }},
    Operation{"launch of cubes", ServerOperation::Launch,
              [](const Scene& s) {
                s.client.launch(fill_kernel(), CubeCount::single(),
                                KernelArguments{}.with_buffer(s.data).with_scalar(std::uint32_t{5}));
              }},
    Operation{"write", ServerOperation::Write, [](const Scene& s) { s.client.write(s.data, Bytes::zeroed(8)); }},
    Operation{"create", ServerOperation::InitializeMemory, [](const Scene& s) { (void)upload(s.client, {1}); }},
    Operation{"staging", ServerOperation::Staging,
              [](const Scene& s) { (void)s.client.reserve_staging(std::array{std::size_t{8}}); }},
    Operation{"get_resource", ServerOperation::GetResource,
              [](const Scene& s) { (void)s.client.get_resource(s.data); }},
    Operation{"replay", ServerOperation::Replay, [](const Scene& s) { s.graph->replay(); }},
    Operation{"memory_cleanup", ServerOperation::MemoryCleanup, [](const Scene& s) { s.client.memory_cleanup(); }},
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

TEST_CASE(
    "L12: what meets the device throws the stream's failures and takes them, what looks is refused, work goes on") {
  OpenHost host;
  for (const Operation& row : operations) {
    INFO(row.name);
    const Scene scene(host.on_new_stream());
    const StreamErrorMode mode = cox::stream_error_mode(row.operation);
    fail_at_once(scene.client);
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

TEST_CASE("L12: the start of a capture takes the stream's failures, and the capture can be started then") {
  OpenHost host;
  const HostClient& client = host.client();
  client.graph_prepare();
  client.launch(throwing(), CubeCount::single(), {});
  fail_at_once(client);
  CHECK(kind_of<ServerError>([&] { client.graph_start_capture(); }) == ServerError::Kind::Unhealthy);
  CHECK(kind_of<ServerError>([&] { (void)client.graph_stop_capture(); }) ==
        ServerError::Kind::Graph);  // none has begun
}

TEST_CASE("L12: work that follows a failure is done, on the stream that failed") {
  OpenHost host;
  const Scene scene(host.on_new_stream());
  const HostClient& client = scene.client;
  fail_at_once(client);
  client.write(scene.data, Bytes::copy_of(std::vector<std::uint32_t>{5, 6}));
  const Handle made = upload(client, {8});
  const Handle copied = client.empty(8);
  client.launch(copy_kernel(), CubeCount::single(), KernelArguments{}.with_buffer(scene.data).with_buffer(copied));
  scene.graph->replay();
  CHECK(met(client) == ServerError::Kind::Unhealthy);
  CHECK(numbers(client.read_one(copied)) == std::vector<std::uint32_t>{5, 6});
  CHECK(numbers(client.read_one(made)) == std::vector<std::uint32_t>{8});
  CHECK(numbers(client.read_one(scene.data)) == std::vector<std::uint32_t>{7, 7});
}

TEST_CASE("L12: failures are told in the order of the stream, not in that of their discovery") {
  OpenHost host;
  const HostClient& client = host.client();
  Gate gate;
  client.launch(gate.kernel(0, [](const auto&) { throw std::runtime_error("first"); }), CubeCount::single(), {});
  gate.wait_until_entered();
  fail_at_once(client);
  CHECK(kind_of<ServerError>([&] { (void)client.memory_usage(); }) == ServerError::Kind::Unhealthy);  // it is found
  auto done = client.sync();
  client.launch(throwing(), CubeCount::single(), {});  // behind who asks
  gate.open();
  try {
    done.get();
    FAIL("two failures were not told");
  } catch (const ServerError& error) {
    REQUIRE(error.errors().size() == 2);
    CHECK(kind<LaunchError>(error.cause()) == LaunchError::Kind::KernelFailed);
    CHECK(kind<LaunchError>(error.errors()[0]) == LaunchError::Kind::KernelFailed);
    CHECK(kind<LaunchError>(error.errors()[1]) == LaunchError::Kind::ArgumentCount);
    CHECK(mentions(error.what(), {"first"}));
  }
  CHECK(met(client) == ServerError::Kind::Unhealthy);
  CHECK_FALSE(met(client));
}

TEST_CASE("L12: every failure of queued work is told once, at once, with its place") {
  OpenHost host;
  const HostClient first = host.on_new_stream();
  const HostClient second = host.on_new_stream();
  Told told;
  const std::uint64_t before = cox::stream_error_count();
  first.launch(throwing(), CubeCount::single(), {});
  CHECK(met(first) == ServerError::Kind::Unhealthy);
  fail_at_once(second);
  second.write(second.empty(4), Bytes::zeroed(3));
  CHECK(kind_of<ServerError>([&] { (void)second.memory_usage(); }) == ServerError::Kind::Unhealthy);
  const auto errors = told.get();
  REQUIRE(errors.size() == 3);
  CHECK(cox::stream_error_count() == before + 3);
  CHECK(errors[0].place.device == host.device());
  CHECK(errors[0].place.stream == first.stream_id());
  CHECK(kind<LaunchError>(errors[0].error) == LaunchError::Kind::KernelFailed);
  CHECK(errors[1].place.stream == second.stream_id());
  CHECK(kind<LaunchError>(errors[1].error) == LaunchError::Kind::ArgumentCount);
  CHECK(errors[2].place.stream == second.stream_id());
  CHECK(kind<IoError>(errors[2].error) == IoError::Kind::SizeMismatch);
  CHECK(met(second) == ServerError::Kind::Unhealthy);  // who is told takes nothing
  CHECK(told.get().size() == 3);                       // and who takes tells nobody
}

TEST_CASE("L12: every use of a handle whose allocation failed carries the cause, also of one tensor of several") {
  OpenHost host({.device_count = 1, .threads_per_device = 1, .memory_capacity = 4096});
  const HostClient& client = host.client();
  const Handle kept = client.empty(1000);
  const auto tensors = client.empty_tensors(
      {MemoryLayoutDescriptor::contiguous({2048}, 1), MemoryLayoutDescriptor::optimized({2, 1024}, 1)});
  CHECK(met(client) == ServerError::Kind::Unhealthy);
  const auto carries_cause = [](const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const IoError& used) {
      return used.kind() == IoError::Kind::AllocationFailed &&
             kind<IoError>(used.cause()) == IoError::Kind::OutOfMemory;
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
    client.launch(fill_kernel(), CubeCount::single(), KernelArguments{}.with_buffer(tensor.memory));
    const auto launch = cause_of([&] { client.flush(); });
    CHECK(kind<LaunchError>(launch) == LaunchError::Kind::Io);
    try {
      std::rethrow_exception(launch);
    } catch (const LaunchError& error) {
      CHECK(carries_cause(error.cause()));
    }
  }
}
