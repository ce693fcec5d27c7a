#include <coxswain/tests/runtime/profile/ticks.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/log_lines.hpp>

#include <coxswain/runtime/config/settings.hpp>
#include <coxswain/runtime/profile/profile_error.hpp>
#include <coxswain/runtime/profile/profiler.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using cox::ProfileDuration;
using cox::ProfileLevel;
using cox::Profiler;
using cox::ProfileTicks;

namespace {

using Ticks = cox::Promise<ProfileTicks>;

/// A device whose work completes when the test says so.
struct Device {
  std::shared_ptr<cox::CompletionThread> helper = std::make_shared<cox::CompletionThread>(cox::DeviceId{});

  [[nodiscard]] std::pair<Ticks, ProfileDuration> work() const {
    Ticks promise(helper);
    auto future = promise.future();
    return {std::move(promise), ProfileDuration(std::move(future), cox::TimingMethod::System)};
  }
  void run(Profiler& profiler, const std::string& name, std::chrono::nanoseconds time) const {
    auto [promise, duration] = work();
    profiler.record(name, std::move(duration));
    promise.set_value(cox::test::took(time));
  }
};

using Text = std::vector<std::string>;

}  // namespace

TEST_CASE("A profiler makes a table of what is done, leaves what is not to the next one, and waits for nothing") {
  cox::test::LogLines lines;
  const Device device;
  Profiler profiler(ProfileLevel::Basic);
  auto [promise, duration] = device.work();
  profiler.record("late", std::move(duration));
  device.run(profiler, "early", 2us);
  const std::string first =
      "| Name  | Duration | Num Computed |    Ratio |\n"
      "| early |  2.00 us |            1 | 100.00 % |\n"
      "| Total |  2.00 us |            1 | 100.00 % |\n";
  CHECK(profiler.table() == first);
  profiler.summarise();
  CHECK(profiler.table().empty());
  profiler.summarise();  // nothing to say
  promise.set_value(cox::test::took(3us));
  CHECK_THAT(profiler.table(), ContainsSubstring("| late  |  3.00 us |") && !ContainsSubstring("early"));
  const std::string second = profiler.table();
  profiler.summarise();
  CHECK(lines.get() == Text{'\n' + first, '\n' + second});
}

TEST_CASE("A duration that was there before it is recorded is in the table when record returns") {
  const Device device;
  Profiler profiler(ProfileLevel::Basic);
  auto [promise, duration] = device.work();
  promise.set_value(cox::test::took(7ns));
  profiler.record("done", std::move(duration));
  CHECK_THAT(profiler.table(), ContainsSubstring("| done  |     7 ns |"));
}

TEST_CASE("The profile level decides what is logged of a launch") {
  const auto logged = [](ProfileLevel level) {
    cox::test::LogLines lines;
    const Device device;
    Profiler profiler(level);
    profiler.executing("matmul");
    device.run(profiler, "matmul", 12'345ns);
    profiler.summarise();
    Text text = lines.get();
    for (std::string& line : text)
      if (line.starts_with('\n')) line = "table";
    return text;
  };
  CHECK(logged(ProfileLevel::Disabled).empty());
  CHECK(logged(ProfileLevel::Minimal) == Text{"Executing matmul"});
  CHECK(logged(ProfileLevel::Basic) == Text{"table"});
  CHECK(logged(ProfileLevel::Medium) == Text{"| 12.35 us | matmul", "table"});
  CHECK(logged(ProfileLevel::Full) == Text{"| 12.35 us | matmul", "table"});
}

TEST_CASE("A profiler measures from level basic on") {
  CHECK_FALSE(Profiler(ProfileLevel::Disabled).measures());
  CHECK_FALSE(Profiler(ProfileLevel::Minimal).measures());
  CHECK(Profiler(ProfileLevel::Basic).measures());
  CHECK(Profiler(ProfileLevel::Full).level() == ProfileLevel::Full);
  const cox::Settings settings;
  CHECK(settings.get<ProfileLevel>("profiling.level") == ProfileLevel::Disabled);
}

TEST_CASE("L12: a duration that cannot be taken is logged with its cause, and counted as left out") {
  cox::test::LogLines lines;
  const Device device;
  Profiler profiler(ProfileLevel::Basic);
  auto [promise, duration] = device.work();
  profiler.record("broken", std::move(duration));
  promise.set_error(std::make_exception_ptr(cox::ProfileError(cox::ProfileError::Kind::Launch, "the launch failed")));
  CHECK(lines.get() == Text{"| failed | broken: the launch failed"});
  CHECK_THAT(profiler.table(), ContainsSubstring("| Left out |        - |            1 |"));
}

TEST_CASE("L7: a profiler keeps a bounded number of durations under way, and has room again when they complete") {
  const Device device;
  Profiler profiler(ProfileLevel::Basic, {.pending = 2, .names = 10});
  std::vector<Ticks> promises;
  for (int i = 0; i < 3; ++i) {
    auto [promise, duration] = device.work();
    profiler.record("work", std::move(duration));
    promises.push_back(std::move(promise));
  }
  for (Ticks& promise : promises) promise.set_value(cox::test::took(1us));
  CHECK_THAT(profiler.table(), ContainsSubstring("| work     |  2.00 us |            2 |") &&
                                   ContainsSubstring("| Left out |        - |            1 |"));
  profiler.summarise();
  device.run(profiler, "again", 1us);
  CHECK_THAT(profiler.table(), ContainsSubstring("| again |  1.00 us |            1 |"));
}

TEST_CASE("A duration that completes after its profiler is gone is forgotten") {
  const Device device;
  std::optional<Profiler> profiler(std::in_place, ProfileLevel::Full);
  auto [promise, duration] = device.work();
  profiler->record("late", std::move(duration));
  profiler.reset();
  promise.set_value(cox::test::took(1us));
}

TEST_CASE("Every duration that many threads record and complete is counted once") {
  const Device device;
  Profiler profiler(ProfileLevel::Basic);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 500; ++i) device.run(profiler, "work", 1us);
      });
    for (int i = 0; i < 20; ++i) CHECK_THAT(profiler.table() + "| Name", ContainsSubstring("| Name"));
  }
  CHECK_THAT(profiler.table(), ContainsSubstring("| work  |  2.00 ms |         2000 |"));
}
