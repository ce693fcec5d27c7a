#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/config/config_error.hpp>
#include <coxswain/runtime/config/setting.hpp>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

using cox::ConfigError;
using cox::known_settings;
using cox::Setting;
using cox::SettingType;
using cox::detail::edit_distance;
using cox::test::kind_of;
using cox::test::message_of;

TEST_CASE("The variable of each setting is COX_ and its key, and no key is there twice") {
  std::set<std::string_view> keys;
  for (const Setting& setting : known_settings()) {
    std::string name = "COX_" + std::string(setting.key);
    std::replace(name.begin(), name.end(), '.', '_');
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
    CHECK(setting.environment == name);
    CHECK(keys.insert(setting.key).second);
    CHECK_FALSE(setting.documentation.empty());
    CHECK((setting.follows.empty() || cox::find_setting(setting.follows).type == setting.type));
  }
}

TEST_CASE("A setting is found by its key, and an unknown key names the nearest") {
  CHECK(cox::find_setting("host.devices").type == SettingType::Count);
  CHECK(kind_of<ConfigError>([] { (void)cox::find_setting("host.device"); }) == ConfigError::Kind::UnknownKey);
  CHECK(message_of([] { (void)cox::find_setting("host.device"); }) ==
        "there is no setting host.device; the nearest is host.devices");
}

TEST_CASE("The nearest key is the one fewest letters away, and a wrong or missing section counts little") {
  CHECK(cox::nearest_key("hots.memory") == "host.memory");
  CHECK(cox::nearest_key("log.levle") == "log.level");
  CHECK(cox::nearest_key("devices") == "host.devices");
  CHECK(cox::nearest_key("thread.stall_treshold") == "device_thread.stall_threshold");
  CHECK(cox::nearest_key("device_thread.queue.capacity") == "device_thread.queue_capacity");
  CHECK(cox::nearest_key("log.collective") == "log.collectives");
}

TEST_CASE("The distance of two words is what must be put in, taken out or changed") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("spin", "spin") == 0);
  CHECK(edit_distance("", "spin") == 4);
  CHECK(edit_distance("spin", "") == 4);
  CHECK(edit_distance("spin", "spins") == 1);
  CHECK(edit_distance("spin", "span") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("The page on settings has a row for each of them") {
  std::ostringstream page;
  page << std::ifstream(std::filesystem::path(COX_SOURCE_DIR) / "docs" / "settings.md").rdbuf();
  REQUIRE_FALSE(page.str().empty());
  for (const Setting& setting : known_settings()) {
    const std::string begin = "| `" + std::string(setting.key) + "` | `" + std::string(setting.environment) + "` | ";
    CHECK_THAT(page.str(), Catch::Matchers::ContainsSubstring(begin) &&
                               Catch::Matchers::ContainsSubstring(std::string(setting.documentation) + " |"));
  }
}
