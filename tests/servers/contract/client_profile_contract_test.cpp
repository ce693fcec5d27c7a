#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/log_lines.hpp>

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/profile/profile_error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace cox::test;
using cox::Bytes;
using cox::Handle;
using cox::LaunchError;
using cox::ProfileDuration;
using cox::ProfileError;
using cox::ProfilingToken;
using cox::ServerError;
using Clock = std::chrono::steady_clock;

namespace {

/// Profiles of a stream, begun and ended in any order.
template <class Backend>
struct Profiles {
  using Server = typename Backend::Server;
  typename Backend::Client client;

  [[nodiscard]] cox::Caller caller() const { return {client.stream_id(), std::source_location::current()}; }
  [[nodiscard]] ProfilingToken begin() const {
    return client.device_handle().submit_blocking([&](Server& server) { return server.start_profile(caller()); });
  }
  [[nodiscard]] ProfileDuration end(ProfilingToken token) const {
    return client.device_handle().submit_blocking(
        [&](Server& server) { return server.end_profile(token, cox::ProfileFailures::OfProfile, caller()); });
  }
};

/// What a profile ends with: nothing if it is a duration.
struct Void {
  std::optional<ProfileError::Kind> kind;
  std::optional<LaunchError::Kind> launch;  ///< if that is the cause
  std::optional<ServerError::Kind> server;
  friend bool operator==(const Void&, const Void&) = default;
};

Void void_of(ProfileDuration duration) {
  try {
    (void)duration.get();
  } catch (const ProfileError& error) {
    return {error.kind(), kind_in<LaunchError>(error.cause()), kind_in<ServerError>(error.cause())};
  }
  return {};
}

/// A device whose launches are recorded as the setting says.
template <class Backend>
class ProfilingDevice {
 public:
  explicit ProfilingDevice(const char* level) {
    cox::set_settings({{"profiling.level", level}});
    device_.emplace();
  }
  ProfilingDevice(const ProfilingDevice&) = delete;
  ProfilingDevice& operator=(const ProfilingDevice&) = delete;
  ~ProfilingDevice() { cox::reset_settings({"profiling.level"}); }

  [[nodiscard]] const typename Backend::Client& client() { return device_->client(); }

 private:
  std::optional<OpenDevice<Backend>> device_;
};

/// What two launches of one kernel and one of another leave in the log.
template <class Backend>
std::vector<std::string> logged_at(const char* level) {
  cox::test::LogLines lines;
  ProfilingDevice<Backend> device(level);
  const auto& client = device.client();
  const Handle data = upload(client, {1, 2});
  launch(client, Backend::fill(data, 3));
  launch(client, Backend::fill(data, 4).with_count({2, 1, 1}));
  launch(client, Backend::nothing());
  CHECK(content(client, data) == std::vector<std::uint32_t>{4, 4});
  client.sync().get();
  client.sync().get();  // the table has begun anew: there is nothing to say
  return lines.get();
}

/// Launches are logged as their durations become known: of two that end shortly after one another whoever looks first
/// at the second may come before who looks at the first.
std::ptrdiff_t ending_with(const std::vector<std::string>& lines, std::string_view end) {
  return std::ranges::count_if(lines, [&](const std::string& line) { return line.ends_with(end); });
}

bool has(std::string_view text, std::initializer_list<std::string_view> parts) {
  INFO(text);
  const bool found = mentions(text, parts);
  CHECK(found);
  return found;
}

}  // namespace

TEMPLATE_TEST_CASE("A profile is of the work in between, no more and no less, and gives what the callable returns", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  typename TestType::Gate before(client);
  typename TestType::Gate inside(client);
  typename TestType::Gate after(client);
  launch(client, before.hold());
  auto [value, duration] = client.profile([&] {
    launch(client, inside.hold());
    return 7;
  });
  launch(client, after.hold());
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
  CHECK(ticks.duration() >= third - second);
  CHECK(ticks.duration() <= Clock::now() - first);
  CHECK(duration.timing_method() == TestType::timing);
  if (TestType::timing == cox::TimingMethod::System) {  // else the clock is the device's own
    CHECK(ticks.begin > first);
    CHECK(ticks.begin < second);
    CHECK(ticks.end > third);
    CHECK(ticks.end < Clock::now());
  }
  after.open();
}

TEMPLATE_TEST_CASE("A profile of a callable that returns nothing is the duration alone, a reference stays one", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  ProfileDuration duration = client.profile([] {});
  const auto ticks = duration.get();
  CHECK(ticks.begin <= ticks.end);
  int one = 1;
  CHECK(&client.profile([&]() -> int& { return one; }).first == &one);
}

TEMPLATE_TEST_CASE("A profile is of the stream of the client that takes it, and so is the work in it", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& unpinned = device.client();
  const auto other = device.on_new_stream();
  const auto caller = unpinned.stream_id();
  typename TestType::Gate elsewhere(other);
  launch(other, elsewhere.hold());
  ProfileDuration duration = unpinned.profile([&] { CHECK(unpinned.stream_id() == caller); });
  (void)duration.get();  // does not wait for the other stream
  ProfileDuration of_other = other.profile([] {});
  elsewhere.wait_until_entered();
  CHECK_FALSE(of_other.ready());
  elsewhere.open();
  (void)of_other.get();
}

TEMPLATE_TEST_CASE("L12: what the callable throws comes out of the profile, and failures of its work are the stream's",
                   "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const auto fail_in_profile = [&](auto work) {
    CHECK_THROWS_AS(client.profile([&] {
      launch(client, work);
      throw std::out_of_range("as it should");
    }),
                    std::out_of_range);
  };
  // There is no duration to tell them.
  const auto told = [&] { return kind_of<ServerError>([&] { client.sync().get(); }); };
  fail_in_profile(TestType::fail_after_submit(client));
  CHECK(told() == ServerError::Kind::Unhealthy);
  fail_in_profile(TestType::misused());
  CHECK(told() == ServerError::Kind::Unhealthy);
  CHECK_FALSE(told());
  (void)client.profile([] {}).get();
  launch(client, TestType::misused());
  CHECK(kind_of<ServerError>([&] { client.sync().get(); }) == ServerError::Kind::Unhealthy);
}

TEMPLATE_TEST_CASE("Profiles of one stream nest and overlap, each from its own begin to its own end", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Profiles<TestType> profiles{device.client()};
  typename TestType::Gate gates[]{typename TestType::Gate(client), typename TestType::Gate(client),
                                  typename TestType::Gate(client)};
  const ProfilingToken first = profiles.begin();
  launch(client, gates[0].hold());
  const ProfilingToken second = profiles.begin();
  auto [nested, outer] = client.profile([&] { return client.profile([&] { launch(client, gates[1].hold()); }); });
  ProfileDuration of_first = profiles.end(first);
  launch(client, gates[2].hold());
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
  CHECK(inner.duration() <= around.duration());
  CHECK(around.duration() <= a.duration());
  CHECK(around.duration() <= b.duration());
  if (TestType::timing == cox::TimingMethod::System) {
    CHECK(a.begin < b.begin);
    CHECK(b.begin <= around.begin);
    CHECK(around.begin <= inner.begin);
    CHECK(inner.end <= around.end);
    CHECK(around.end <= a.end);
    CHECK(a.end < b.end);
  }
}

TEMPLATE_TEST_CASE(
    "L12: failures of the work in a profile are the profile's, with the launch as cause, not the stream's", "",
    COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Void late{ProfileError::Kind::Launch, TestType::late_kind, {}};
  const Void early{ProfileError::Kind::Launch, LaunchError::Kind::ArgumentCount, {}};
  CHECK(void_of(client.profile([&] { launch(client, TestType::fail_after_submit(client)); })) == late);
  client.sync().get();
  CHECK(void_of(client.profile([&] { launch(client, TestType::misused()); })) == early);
  client.sync().get();
  // The first of several, in the order of the stream.
  CHECK(void_of(client.profile([&] {
          launch(client, TestType::fail_after_submit(client));
          launch(client, TestType::misused());
        })) == late);
  CHECK(void_of(client.profile([&] {
          launch(client, TestType::misused());
          launch(client, TestType::fail_after_submit(client));
        })) == early);
  client.sync().get();
  CHECK(void_of(client.profile([] {})) == Void{});
  // Also where the stream is asked before the profile is.
  ProfileDuration unseen = client.profile([&] { launch(client, TestType::fail_after_submit(client)); });
  CHECK_NOTHROW(client.sync().get());
  CHECK(void_of(std::move(unseen)) == late);
}

TEMPLATE_TEST_CASE(
    "L12: a failure of other work in a profile is a server's, and those before and after it are the stream's", "",
    COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  launch(client, TestType::misused());
  auto duration = client.profile([&] { client.write(client.empty(4), Bytes::zeroed(3)); });
  CHECK(void_of(std::move(duration)) == Void{ProfileError::Kind::Server, std::nullopt, ServerError::Kind::Io});
  launch(client, TestType::fail_after_submit(client));
  try {
    client.sync().get();
    FAIL("two failures were not told");
  } catch (const ServerError& error) {
    CHECK(error.errors().size() == 2);
    CHECK(mentions(error.what(), {"'misused'"}));
  }
  CHECK(void_of(client.profile([] {})) == Void{});
}

TEMPLATE_TEST_CASE("L12: a failure voids all profiles that are open around it", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  for (const bool early : {false, true}) {
    auto [inner, outer] = client.profile([&] {
      return client.profile([&] { launch(client, early ? TestType::misused() : TestType::fail_after_submit(client)); });
    });
    const Void expected{ProfileError::Kind::Launch, early ? LaunchError::Kind::ArgumentCount : TestType::late_kind, {}};
    CHECK(void_of(std::move(inner)) == expected);
    CHECK(void_of(std::move(outer)) == expected);
    client.sync().get();
  }
}

TEMPLATE_TEST_CASE("A profile that is not open on the stream cannot be ended", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const Profiles<TestType> profiles{device.client()};
  const Profiles<TestType> elsewhere{device.on_new_stream()};
  const auto end = [](const Profiles<TestType>& of, ProfilingToken token) {
    return kind_of<ProfileError>([&] { (void)of.end(token); });
  };
  CHECK(end(profiles, {}) == ProfileError::Kind::NotRegistered);
  const ProfilingToken token = profiles.begin();
  CHECK(end(elsewhere, token) == ProfileError::Kind::NotRegistered);
  CHECK_FALSE(end(profiles, token));
  CHECK(end(profiles, token) == ProfileError::Kind::NotRegistered);
  device.client().sync().get();
}

TEMPLATE_TEST_CASE("A duration that is dropped, or whose device is closed, is no trouble", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  std::optional<OpenDevice<TestType>> device(std::in_place);
  ProfileDuration kept = [&] {
    const auto& client = device->client();
    typename TestType::Gate gate(client);
    launch(client, gate.hold());
    (void)client.profile([] {});
    return client.profile([] {});
  }();
  device.reset();
  CHECK(kept.get().duration() >= std::chrono::nanoseconds(0));  // a shutdown drains
}

TEMPLATE_TEST_CASE("Launches are recorded as the profiling level says, with a table at sync", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  CHECK(logged_at<TestType>("disabled").empty());
  CHECK(logged_at<TestType>("minimal") ==
        std::vector<std::string>{"Executing fill", "Executing fill", "Executing nothing"});
  const auto basic = logged_at<TestType>("basic");
  REQUIRE(basic.size() == 1);
  CHECK(has(basic[0], {"\n| Name    |", "Num Computed", "\n| fill    |", "|            2 |", "\n| nothing |",
                       "\n| Total   |", "|            3 | 100.00 % |"}));
  const auto medium = logged_at<TestType>("medium");
  REQUIRE(medium.size() == 4);
  CHECK(ending_with(medium, " | fill") == 2);
  CHECK(ending_with(medium, " | nothing") == 1);
  const auto full = logged_at<TestType>("full");
  REQUIRE(full.size() == 4);
  CHECK(full[0].starts_with("| "));
  CHECK(ending_with(full, " | fill: (1, 1, 1) CubeCount (1, 1, 1)") == 1);
  CHECK(ending_with(full, " | fill: (1, 1, 1) CubeCount (2, 1, 1)") == 1);
  CHECK(ending_with(full, " | nothing: (1, 1, 1) CubeCount (1, 1, 1)") == 1);
  CHECK(has(full[3], {"| fill: (1, 1, 1) CubeCount (1, 1, 1)    |", "| fill: (1, 1, 1) CubeCount (2, 1, 1)    |",
                      "| nothing: (1, 1, 1) CubeCount (1, 1, 1) |"}));
}

TEMPLATE_TEST_CASE("There is no profile in a capture, and the capture goes on", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = upload(client, {1});
  client.graph_prepare();
  client.graph_start_capture();
  bool called = false;
  CHECK(kind_of<ServerError>([&] { (void)client.profile([&] { called = true; }); }) == ServerError::Kind::Graph);
  CHECK_FALSE(called);
  launch(client, TestType::fill(data, 3));
  const auto graph = client.graph_stop_capture();
  CHECK(content(client, data) == std::vector<std::uint32_t>{1});
  ProfileDuration duration = client.profile([&] { graph.replay(); });
  CHECK(void_of(std::move(duration)) == Void{});
  CHECK(content(client, data) == std::vector<std::uint32_t>{3});
}

TEMPLATE_TEST_CASE("Launches that would be measured are captured in a capture, and not measured", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  cox::test::LogLines lines;
  {
    ProfilingDevice<TestType> device("basic");
    const auto& client = device.client();
    const Handle data = upload(client, {1});
    client.graph_prepare();
    client.graph_start_capture();
    launch(client, TestType::fill(data, 3));
    const auto graph = client.graph_stop_capture();
    CHECK(content(client, data) == std::vector<std::uint32_t>{1});
    graph.replay();
    CHECK(content(client, data) == std::vector<std::uint32_t>{3});
    client.sync().get();
  }
  CHECK(lines.get().empty());
}

TEMPLATE_TEST_CASE("L12: a launch that fails while launches are measured fails as any other", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  const cox::test::LogLines lines;
  ProfilingDevice<TestType> device("basic");
  const auto& client = device.client();
  for (const bool early : {false, true}) {
    INFO(early);
    CHECK_NOTHROW(launch(client, early ? TestType::misused() : TestType::fail_after_submit(client)));
    CHECK(kind_of<ServerError>([&] { client.sync().get(); }) == ServerError::Kind::Unhealthy);
    client.sync().get();
  }
}

TEMPLATE_TEST_CASE("L12: failures in a profile are not the stream's while the stream has not come to its end", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  typename TestType::Gate gate(client);
  ProfileDuration duration = client.profile([&] {
    launch(client, TestType::misused());
    launch(client, gate.hold());
  });
  gate.wait_until_entered();
  CHECK_NOTHROW(client.flush());
  CHECK_NOTHROW(client.memory_usage());
  CHECK_NOTHROW(client.memory_report());
  CHECK_NOTHROW(client.graph_prepare());
  CHECK_NOTHROW(client.graph_start_capture());
  (void)client.graph_stop_capture();
  gate.open();
  CHECK(void_of(std::move(duration)) == Void{ProfileError::Kind::Launch, LaunchError::Kind::ArgumentCount, {}});
  CHECK_NOTHROW(client.sync().get());
  CHECK_NOTHROW(client.flush());
}

TEMPLATE_TEST_CASE("L12: failures in a profile whose duration is dropped are the stream's again", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  for (const bool waits : {false, true}) {
    {
      const ProfileDuration duration = client.profile([&] { launch(client, TestType::misused()); });
      if (waits) CHECK(duration.wait_for(std::chrono::nanoseconds::max()));
    }
    client.device_handle().submit_blocking([](auto&) {});
    try {
      client.sync().get();
      FAIL("a failure was lost");
    } catch (const ServerError& error) {
      CHECK(kind_in<LaunchError>(error.cause()) == LaunchError::Kind::ArgumentCount);
    }
    CHECK_NOTHROW(client.sync().get());
  }
}
