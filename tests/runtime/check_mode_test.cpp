#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/base/execution_mode.hpp>
#include <coxswain/runtime/config/settings.hpp>

using cox::CheckMode;
using cox::ExecutionMode;
using cox::unchecked_mode;

TEST_CASE("The check mode decides how an unchecked launch runs") {
  CHECK(unchecked_mode(CheckMode::Enforce) == ExecutionMode::Checked);
  CHECK(unchecked_mode(CheckMode::Validate) == ExecutionMode::Validate);
  CHECK(unchecked_mode(CheckMode::Auto) == ExecutionMode::Unchecked);
}

TEST_CASE("The setting for unchecked launches is auto unless it is given, in code, environment or file") {
  cox::Settings settings;
  CHECK(settings.get<CheckMode>("compilation.check_mode") == CheckMode::Auto);
  settings.set("compilation.check_mode", CheckMode::Validate);
  CHECK(settings.get<CheckMode>("compilation.check_mode") == CheckMode::Validate);
  cox::SettingsOrigin origin;
  origin.file = {.name = "some.toml", .text = "[compilation]\ncheck_mode = 'enforce'\n"};
  CHECK(cox::Settings(origin).get<CheckMode>("compilation.check_mode") == CheckMode::Enforce);
  origin.environment = {{"COX_COMPILATION_CHECK_MODE", "validate"}};
  CHECK(cox::Settings(origin).get<CheckMode>("compilation.check_mode") == CheckMode::Validate);
}
