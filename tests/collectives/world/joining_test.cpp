#include <coxswain/tests/collectives/world/session_member.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>

#include <coxswain/collectives/world/world_error.hpp>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>

using namespace cox;
using namespace std::chrono_literals;
using namespace cox::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("Processes that join know each other's devices") {
  const TemporaryFolder folder;
  Member first(folder, 0, 2);
  Member second(folder, 1, 2);
  auto joined = std::async(std::launch::async, [&] { first.session.join(); });
  second.session.join();
  joined.get();
  for (const Member* member : {&first, &second}) {
    REQUIRE(member->session.processes().size() == 2);
    CHECK(member->session.processes()[1].host == "here");
    CHECK(member->session.processes()[1].devices == std::vector{DeviceId{0, 1, 2}});
  }
  second.leave();
  first.leave();
}

TEST_CASE("A process that does not come is named at the deadline") {
  const TemporaryFolder folder;
  Member first(folder, 0, 3, {.timeout = 500ms});
  Member second(folder, 1, 3, {.timeout = 500ms});
  auto joined = std::async(std::launch::async, [&] { second.session.join(); });
  const std::string text = message_of([&] { first.session.join(); });
  CHECK_THAT(text, ContainsSubstring("process 2"));
  CHECK_THAT(text, !ContainsSubstring("process 1"));
  CHECK_THROWS_AS(joined.get(), WorldError);
}

TEST_CASE("A process that has another number of processes is refused, and the world waits for the right one") {
  const TemporaryFolder folder;
  Member first(folder, 0, 2);
  auto joined = std::async(std::launch::async, [&] { first.session.join(); });
  Member wrong(folder, 1, 3, {.timeout = 20s});
  CHECK(kind_of<WorldError>([&] { wrong.session.join(); }) == WorldError::Kind::Refused);
  CHECK(joined.wait_for(0s) == std::future_status::timeout);
  Member right(folder, 1, 2);
  right.session.join();
  joined.get();
  right.leave();
  first.leave();
}
