#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/base/execution_mode.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

using namespace cox::test;
using cox::CubeCount;
using cox::ExecutionMode;
using cox::Handle;
using cox::HostClient;
using cox::HostKernel;
using cox::KernelArguments;
using cox::LaunchError;
using cox::ServerError;

namespace {

/// A device whose unchecked launches the setting decides about.
class CheckModeHost {
 public:
  explicit CheckModeHost(const char* mode) {
    cox::set_settings({{"compilation.check_mode", mode}});
    host_.emplace();
  }
  CheckModeHost(const CheckModeHost&) = delete;
  CheckModeHost& operator=(const CheckModeHost&) = delete;
  ~CheckModeHost() { cox::reset_settings({"compilation.check_mode"}); }

  [[nodiscard]] const HostClient& client() { return host_->client(); }

 private:
  std::optional<OpenHost> host_;
};

/// Writes one element beyond its buffer.
HostKernel beyond() {
  return {"beyond", {}, 1, [](const cox::KernelContext& context) {
            const auto data = context.buffer<std::uint32_t>(0);
            data[data.size()] = 9;
          }};
}

struct Outcome {
  std::vector<std::uint32_t> content;
  std::optional<LaunchError::Kind> failure;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// What comes of a kernel that reaches beyond the first half of a buffer, into the other.
template <class Launch>
Outcome outcome_of(const HostClient& client, Launch launch) {
  const Handle data = upload(client, {1, 2, 3, 4});
  launch(KernelArguments{}.with_buffer(data.offset_end(8)));
  Outcome outcome;
  outcome.failure = kind_of<LaunchError>([&] {
    try {
      client.sync().get();
    } catch (const ServerError& error) {
      std::rethrow_exception(error.cause());
    }
  });
  client.accept(data);
  outcome.content = numbers(client.read_one(data));
  return outcome;
}

Outcome unchecked_under(const char* check_mode) {
  CheckModeHost host(check_mode);
  const HostClient& client = host.client();
  return outcome_of(client, [&](KernelArguments arguments) {
    client.launch_unchecked(beyond(), CubeCount::single(), std::move(arguments));
  });
}

const Outcome refused{{1, 2, 3, 4}, LaunchError::Kind::OutOfBounds};
const Outcome done{{1, 2, 9, 4}, std::nullopt};

}  // namespace

TEST_CASE("A launch runs in the mode that it is given, checked unless it is given one") {
  OpenHost host;
  const HostClient& client = host.client();
  CHECK(outcome_of(client, [&](KernelArguments arguments) {
          client.launch(beyond(), CubeCount::single(), std::move(arguments));
        }) == refused);
  const auto in_mode = [&](ExecutionMode mode) {
    return outcome_of(client, [&](KernelArguments arguments) {
      client.launch(beyond(), CubeCount::single(), std::move(arguments), mode);
    });
  };
  CHECK(in_mode(ExecutionMode::Checked) == refused);
  CHECK(in_mode(ExecutionMode::Validate) == refused);
  CHECK(in_mode(ExecutionMode::Unchecked) == done);
}

TEST_CASE("An unchecked launch runs as the setting says: checked, in mode validate, or unchecked") {
  CHECK(unchecked_under("enforce") == refused);
  CHECK(unchecked_under("validate") == refused);
  CHECK(unchecked_under("auto") == done);
}

TEST_CASE("A launch with a dynamic cube count is recorded, and every replay reads the count anew") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle cubes = upload(client, {0, 1, 1});
  const Handle counted = upload(client, {0});
  const HostKernel count{"count", {}, 1, [](const cox::KernelContext& context) {
                           ++context.buffer<std::uint32_t>(0)[0];  // one cube at a time
                         }};
  client.graph_prepare();
  client.graph_start_capture();
  client.launch(count, CubeCount::dynamic(cubes), KernelArguments{}.with_buffer(counted));
  const auto graph = client.graph_stop_capture();
  graph.replay();
  CHECK(numbers(client.read_one(counted)) == std::vector<std::uint32_t>{0});
  client.write(cubes, cox::Bytes::copy_of(std::vector<std::uint32_t>{3, 1, 1}));
  graph.replay();
  client.write(cubes, cox::Bytes::copy_of(std::vector<std::uint32_t>{2, 2, 1}));
  graph.replay();
  CHECK(numbers(client.read_one(counted)) == std::vector<std::uint32_t>{7});
}

TEST_CASE("A scalar that the kernel reads as another type fails the launch, and poisons what it should have written") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle data = upload(client, {1, 2, 3, 4});
  const HostKernel scale("scale", {}, 1, [](const cox::KernelContext& context) {
    for (float& value : context.buffer<float>(0)) value *= context.scalar<float>(0);
  });
  const bool compact = GENERATE(true, false);
  auto arguments = KernelArguments{}.with_buffer(data).with_scalar(std::uint64_t{2});
  if (!compact)
    for (int i = 0; i < 12; ++i) arguments.with_scalar(i);
  client.launch(scale, CubeCount::single(), arguments);
  try {
    client.sync().get();
    FAIL("a u64 was read as a float");
  } catch (const ServerError& error) {
    CHECK(kind_in<LaunchError>(error.cause()) == LaunchError::Kind::ArgumentType);
    CHECK(mentions(cox::describe(error.cause()), {"scale", "scalar 0 was passed as u64", "f32"}));
  }
  CHECK(data.failure());
}
