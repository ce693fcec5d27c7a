#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/log_lines.hpp>

#include <coxswain/runtime/launch_error.hpp>
#include <coxswain/runtime/process_settings.hpp>
#include <coxswain/runtime/profile_error.hpp>
#include <coxswain/runtime/server_error.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace cox::test;
using cox::Bytes;
using cox::CubeCount;
using cox::Handle;
using cox::HostClient;
using cox::HostKernel;
using cox::HostServer;
using cox::KernelArguments;
using cox::LaunchError;
using cox::ProfileDuration;
using cox::ProfileError;
using cox::ProfilingToken;
using cox::ServerError;
using Clock = std::chrono::steady_clock;

namespace {

void launch(const HostClient& client, HostKernel kernel) { client.launch(std::move(kernel), CubeCount::single(), {}); }

HostKernel throwing() {
  return {"late", {}, 0, [](const cox::KernelContext&) { throw std::runtime_error("as it should"); }};
}
HostKernel misused() {
  return {"early", {}, 3, [](const cox::KernelContext&) {}};
}

/// Profiles of a stream, begun and ended in any order.
struct Profiles {
  HostClient client;

  [[nodiscard]] cox::Caller caller() const { return {client.stream_id(), std::source_location::current()}; }
  [[nodiscard]] ProfilingToken begin() const {
    return client.device_handle().submit_blocking([&](HostServer& server) { return server.start_profile(caller()); });
  }
  [[nodiscard]] ProfileDuration end(ProfilingToken token) const {
    return client.device_handle().submit_blocking(
        [&](HostServer& server) { return server.end_profile(token, cox::ProfileFailures::OfProfile, caller()); });
  }
};

/// What a profile ends with: nothing if it is a duration.
struct Void {
  std::optional<ProfileError::Kind> kind;
  std::optional<LaunchError::Kind> launch;  ///< if that is the cause
  std::optional<ServerError::Kind> server;
  friend bool operator==(const Void&, const Void&) = default;
};

template <class E>
std::optional<typename E::Kind> kind(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const E& known) {
    return known.kind();
  } catch (...) {
    return std::nullopt;
  }
}

Void void_of(ProfileDuration duration) {
  try {
    (void)duration.get();
  } catch (const ProfileError& error) {
    return {error.kind(), kind<LaunchError>(error.cause()), kind<ServerError>(error.cause())};
  }
  return {};
}

/// A device whose launches are recorded as the setting says.
class ProfilingHost {
 public:
  explicit ProfilingHost(const char* level) {
    cox::set_settings({{"profiling.level", level}});
    host_.emplace();
  }
  ProfilingHost(const ProfilingHost&) = delete;
  ProfilingHost& operator=(const ProfilingHost&) = delete;
  ~ProfilingHost() { cox::reset_settings({"profiling.level"}); }

  [[nodiscard]] const HostClient& client() { return host_->client(); }

 private:
  std::optional<OpenHost> host_;
};

void fill(const HostClient& client, const Handle& data, std::uint32_t value, CubeCount count = CubeCount::single()) {
  client.launch(fill_kernel(), std::move(count), KernelArguments{}.with_buffer(data).with_scalar(value));
}

/// What two launches of one kernel and one of another leave in the log.
std::vector<std::string> logged_at(const char* level) {
  cox::test::LogLines lines;
  ProfilingHost host(level);
  const HostClient& client = host.client();
  const Handle data = upload(client, {1, 2});
  fill(client, data, 3);
  fill(client, data, 4, {2, 1, 1});
  launch(client, {"idle", {}, 0, [](const cox::KernelContext&) {}});
  CHECK(numbers(client.read_one(data)) == std::vector<std::uint32_t>{4, 4});
  client.sync().get();
  client.sync().get();  // the table has begun anew: there is nothing to say
  return lines.get();
}

bool has(std::string_view text, std::initializer_list<std::string_view> parts) {
  INFO(text);
  const bool found = mentions(text, parts);
  CHECK(found);
  return found;
}

}  // namespace

TEST_CASE("A profile is of the work in between, no more and no less, and gives what the callable returns") {
  OpenHost host;
  const HostClient& client = host.client();
  Gate before;
  Gate inside;
  Gate after;
  launch(client, before.kernel(0));
  auto [value, duration] = client.profile([&] {
    launch(client, inside.kernel(0));
    return 7;
  });
  launch(client, after.kernel(0));
  CHECK(value == 7);
  before.wait_until_entered();
  const auto first = Clock::now();
  before.open();
  inside.wait_until_entered();
  const auto second = Clock::now();
  CHECK_FALSE(duration.ready());
  const auto third = Clock::now();
  inside.open();
  after.wait_until_entered();
  const auto ticks = duration.get();  // while the work behind it still runs
  CHECK(ticks.begin > first);
  CHECK(ticks.begin < second);
  CHECK(ticks.end > third);
  CHECK(ticks.end < Clock::now());
  CHECK(duration.timing_method() == cox::TimingMethod::System);
  after.open();
}

TEST_CASE("A profile of a callable that returns nothing is the duration alone, a reference stays one") {
  OpenHost host;
  const HostClient& client = host.client();
  ProfileDuration duration = client.profile([] {});
  const auto ticks = duration.get();
  CHECK(ticks.begin <= ticks.end);
  int one = 1;
  CHECK(&client.profile([&]() -> int& { return one; }).first == &one);
}

TEST_CASE("A profile is of the stream of the client that takes it, and so is the work in it") {
  OpenHost host;
  const HostClient& unpinned = host.client();
  const HostClient other = host.on_new_stream();
  const auto caller = unpinned.stream_id();
  Gate elsewhere;
  launch(other, elsewhere.kernel(0));
  ProfileDuration duration = unpinned.profile([&] { CHECK(unpinned.stream_id() == caller); });
  (void)duration.get();  // does not wait for the other stream
  ProfileDuration of_other = other.profile([] {});
  elsewhere.wait_until_entered();
  CHECK_FALSE(of_other.ready());
  elsewhere.open();
  (void)of_other.get();
}

TEST_CASE("What the callable throws comes out of the profile, which is over then") {
  OpenHost host;
  const HostClient& client = host.client();
  const auto fail_in_profile = [&](auto kernel) {
    CHECK_THROWS_AS(client.profile([&] {
      launch(client, kernel);
      throw std::out_of_range("as it should");
    }),
                    std::out_of_range);
  };
  fail_in_profile(throwing());
  client.sync().get();  // the failure went with the profile
  fail_in_profile(misused());
  client.sync().get();
  (void)client.profile([] {}).get();
  launch(client, misused());
  CHECK(kind_of<ServerError>([&] { client.sync().get(); }) == ServerError::Kind::Unhealthy);
}

TEST_CASE("Profiles of one stream nest and overlap, each from its own begin to its own end") {
  OpenHost host;
  const HostClient& client = host.client();
  const Profiles profiles{host.client()};
  Gate gates[3];
  const ProfilingToken first = profiles.begin();
  launch(client, gates[0].kernel(0));
  const ProfilingToken second = profiles.begin();
  auto [nested, outer] = client.profile([&] { return client.profile([&] { launch(client, gates[1].kernel(0)); }); });
  ProfileDuration of_first = profiles.end(first);
  launch(client, gates[2].kernel(0));
  ProfileDuration of_second = profiles.end(second);

  gates[0].wait_until_entered();
  gates[0].open();
  gates[1].wait_until_entered();
  CHECK_FALSE(nested.ready());
  CHECK_FALSE(of_first.ready());
  gates[1].open();
  gates[2].wait_until_entered();
  const auto a = of_first.get();
  CHECK_FALSE(of_second.ready());
  gates[2].open();
  const auto b = of_second.get();
  const auto inner = nested.get();
  const auto around = outer.get();
  CHECK(a.begin < b.begin);
  CHECK(b.begin <= around.begin);
  CHECK(around.begin <= inner.begin);
  CHECK(inner.end <= around.end);
  CHECK(around.end <= a.end);
  CHECK(a.end < b.end);
}

TEST_CASE("L12: failures of the work in a profile are the profile's, with the launch as cause, not the stream's") {
  OpenHost host;
  const HostClient& client = host.client();
  const Void late{ProfileError::Kind::Launch, LaunchError::Kind::KernelFailed, {}};
  const Void early{ProfileError::Kind::Launch, LaunchError::Kind::ArgumentCount, {}};
  CHECK(void_of(client.profile([&] { launch(client, throwing()); })) == late);
  client.sync().get();
  CHECK(void_of(client.profile([&] { launch(client, misused()); })) == early);
  client.sync().get();
  // The first of several, in the order of the stream.
  CHECK(void_of(client.profile([&] {
          launch(client, throwing());
          launch(client, misused());
        })) == late);
  CHECK(void_of(client.profile([&] {
          launch(client, misused());
          launch(client, throwing());
        })) == early);
  client.sync().get();
  CHECK(void_of(client.profile([] {})) == Void{});
}

TEST_CASE("L12: a failure of other work in a profile is a server's, and those before and after it are the stream's") {
  OpenHost host;
  const HostClient& client = host.client();
  launch(client, misused());
  auto duration = client.profile([&] { client.write(client.empty(4), Bytes::zeroed(3)); });
  CHECK(void_of(std::move(duration)) == Void{ProfileError::Kind::Server, std::nullopt, ServerError::Kind::Io});
  launch(client, throwing());
  try {
    client.sync().get();
    FAIL("two failures were not told");
  } catch (const ServerError& error) {
    CHECK(error.errors().size() == 2);
    CHECK(mentions(error.what(), {"'early'"}));
  }
  CHECK(void_of(client.profile([] {})) == Void{});
}

TEST_CASE("L12: a failure voids all profiles that are open around it") {
  OpenHost host;
  const HostClient& client = host.client();
  for (const bool early : {false, true}) {
    auto [inner, outer] =
        client.profile([&] { return client.profile([&] { launch(client, early ? misused() : throwing()); }); });
    const Void expected{
        ProfileError::Kind::Launch, early ? LaunchError::Kind::ArgumentCount : LaunchError::Kind::KernelFailed, {}};
    CHECK(void_of(std::move(inner)) == expected);
    CHECK(void_of(std::move(outer)) == expected);
    client.sync().get();
  }
}

TEST_CASE("A profile that is not open on the stream cannot be ended") {
  OpenHost host;
  const Profiles profiles{host.client()};
  const Profiles elsewhere{host.on_new_stream()};
  const auto end = [](const Profiles& of, ProfilingToken token) {
    return kind_of<ProfileError>([&] { (void)of.end(token); });
  };
  CHECK(end(profiles, {}) == ProfileError::Kind::NotRegistered);
  const ProfilingToken token = profiles.begin();
  CHECK(end(elsewhere, token) == ProfileError::Kind::NotRegistered);
  CHECK_FALSE(end(profiles, token));
  CHECK(end(profiles, token) == ProfileError::Kind::NotRegistered);
  host.client().sync().get();
}

TEST_CASE("A duration that is dropped, or whose device is closed, is no trouble") {
  std::optional<OpenHost> host(std::in_place);
  Gate gate;
  launch(host->client(), gate.kernel(0));
  (void)host->client().profile([] {});
  ProfileDuration kept = host->client().profile([] {});
  gate.open();
  host.reset();
  CHECK(kept.get().duration() >= std::chrono::nanoseconds(0));  // a shutdown drains
}

TEST_CASE("Launches are recorded as the profiling level says, with a table at sync") {
  CHECK(logged_at("disabled").empty());
  CHECK(logged_at("minimal") == std::vector<std::string>{"Executing fill", "Executing fill", "Executing idle"});
  const auto basic = logged_at("basic");
  REQUIRE(basic.size() == 1);
  CHECK(has(basic[0], {"\n| Name  |", "Num Computed", "\n| fill  |", "|            2 |", "\n| idle  |", "\n| Total |",
                       "|            3 | 100.00 % |"}));
  const auto medium = logged_at("medium");
  REQUIRE(medium.size() == 4);
  CHECK(medium[0].ends_with(" | fill"));
  CHECK(medium[2].ends_with(" | idle"));
  const auto full = logged_at("full");
  REQUIRE(full.size() == 4);
  CHECK(full[0].starts_with("| "));
  CHECK(full[0].ends_with(" | fill: (1, 1, 1) CubeCount (1, 1, 1)"));
  CHECK(full[1].ends_with(" | fill: (1, 1, 1) CubeCount (2, 1, 1)"));
  CHECK(has(full[3], {"| fill: (1, 1, 1) CubeCount (1, 1, 1) |", "| fill: (1, 1, 1) CubeCount (2, 1, 1) |",
                      "| idle: (1, 1, 1) CubeCount (1, 1, 1) |"}));
}

TEST_CASE("There is no profile in a capture, and the capture goes on") {
  OpenHost host;
  const HostClient& client = host.client();
  const Handle data = upload(client, {1});
  client.graph_prepare();
  client.graph_start_capture();
  bool called = false;
  CHECK(kind_of<ServerError>([&] { (void)client.profile([&] { called = true; }); }) == ServerError::Kind::Graph);
  CHECK_FALSE(called);
  fill(client, data, 3);
  const auto graph = client.graph_stop_capture();
  CHECK(numbers(client.read_one(data)) == std::vector<std::uint32_t>{1});
  ProfileDuration duration = client.profile([&] { graph.replay(); });
  CHECK(void_of(std::move(duration)) == Void{});
  CHECK(numbers(client.read_one(data)) == std::vector<std::uint32_t>{3});
}

TEST_CASE("Launches that would be measured are captured in a capture, and not measured") {
  cox::test::LogLines lines;
  {
    ProfilingHost host("basic");
    const HostClient& client = host.client();
    const Handle data = upload(client, {1});
    client.graph_prepare();
    client.graph_start_capture();
    fill(client, data, 3);
    const auto graph = client.graph_stop_capture();
    CHECK(numbers(client.read_one(data)) == std::vector<std::uint32_t>{1});
    graph.replay();
    CHECK(numbers(client.read_one(data)) == std::vector<std::uint32_t>{3});
    client.sync().get();
  }
  CHECK(lines.get().empty());
}

TEST_CASE("L12: a launch that fails while launches are measured fails as any other") {
  const cox::test::LogLines lines;
  ProfilingHost host("basic");
  const HostClient& client = host.client();
  for (const bool early : {false, true}) {
    INFO(early);
    CHECK_NOTHROW(launch(client, early ? misused() : throwing()));
    CHECK(kind_of<ServerError>([&] { client.sync().get(); }) == ServerError::Kind::Unhealthy);
    client.sync().get();
  }
}
