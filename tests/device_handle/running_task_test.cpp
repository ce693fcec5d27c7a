#include <coxswain/device_handle/observe/running_task.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <string>

namespace {
struct Recognisable {};
}  // namespace

TEST_CASE("A running task is named by its label and call site, else by its type", "[running_task]") {
  cox::RunningTask running;
  CHECK_FALSE(running.in_task());
  CHECK_FALSE(running.to_string().empty());
  running.enter(&typeid(Recognisable));
  CHECK(running.in_task());
  CHECK_THAT(running.to_string(), Catch::Matchers::ContainsSubstring("Recognisable"));
  const auto site = std::source_location::current();
  running.name("upload", site);
  CHECK_THAT(running.to_string(), Catch::Matchers::ContainsSubstring("upload") &&
                                      Catch::Matchers::ContainsSubstring("running_task_test.cpp") &&
                                      Catch::Matchers::ContainsSubstring(std::to_string(site.line())));
  const auto serial = running.serial();
  running.leave();
  CHECK_FALSE(running.in_task());
  running.enter(&typeid(Recognisable));
  CHECK(running.serial() != serial);
  CHECK_THAT(running.to_string(),
             Catch::Matchers::ContainsSubstring("Recognisable") && !Catch::Matchers::ContainsSubstring("upload"));
}
