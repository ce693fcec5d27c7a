#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>
#include <coxswain/tests/support/variable.hpp>
#include <coxswain/tests/tools/command.hpp>

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/servers/host/server/host_options.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::test::TemporaryFile;
using cox::test::Variable;
using cox::tools::Command;
using cox::tools::ExitCode;

namespace {

// The words of the row of that key.
std::vector<std::string> row(const std::string& table, const std::string& key) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> row;
    for (std::string word; words >> word;) row.push_back(word);
    if (!row.empty() && row.front() == key) return row;
  }
  return {};
}

nlohmann::json entry(const nlohmann::json& config, const std::string& key) {
  for (const auto& each : config["settings"])
    if (each["key"] == key) return each;
  return nullptr;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("cox config shows for each setting what is in force and where it comes from") {
  cox::reset_host_options();
  const TemporaryFile file("[host]\nthreads = 3\nmemory = '64MiB'\n");
  const Variable config("COX_CONFIG", file.path());
  const Variable devices("COX_HOST_DEVICES", "7");
  cox::set_settings({{"log.stderr", false}});
  const Command command = Command::run({"config"});
  cox::reset_settings({"log.stderr"});
  cox::log::stop();
  REQUIRE(command.code == ExitCode::Ok);
  CHECK(command.err.empty());
  CHECK(row(command.out, "key") == Words{"key", "value", "source"});
  CHECK(row(command.out, "host.devices") == Words{"host.devices", "7", "environment", "COX_HOST_DEVICES"});
  CHECK(row(command.out, "host.threads") == Words{"host.threads", "3", file.path() + ":2:11"});
  CHECK(row(command.out, "host.memory") == Words{"host.memory", "64MiB", file.path() + ":3:10"});
  CHECK(row(command.out, "log.stderr") == Words{"log.stderr", "false", "code"});
  CHECK(row(command.out, "log.file") == Words{"log.file", "\"\"", "default"});
  CHECK(row(command.out, "log.host") == Words{"log.host", "warn", "default", "(as", "log.level)"});
  CHECK(row(command.out, "device_thread.spin") == Words{"device_thread.spin", "250us", "default"});
  CHECK_THAT(command.out, ContainsSubstring("settings file: " + file.path() + "\n"));
}

TEST_CASE("cox config --json - gives the settings as JSON instead of the table") {
  cox::reset_host_options();
  const Variable devices("COX_HOST_DEVICES", "7");
  const Command command = Command::run({"config", "--json", "-"});
  REQUIRE(command.code == ExitCode::Ok);
  const auto json = nlohmann::json::parse(command.out);
  CHECK(json["file"].is_null());
  CHECK(json["settings"].size() == cox::known_settings().size());
  const auto host_devices = entry(json, "host.devices");
  CHECK(host_devices["value"] == 7);
  CHECK(host_devices["source"] == nlohmann::json{{"kind", "environment"}, {"name", "COX_HOST_DEVICES"}});
  CHECK(host_devices["environment"] == "COX_HOST_DEVICES");
  CHECK(host_devices["expected"] == "a whole number from 1 to 65535");
  CHECK(entry(json, "host.memory")["value"] == 1073741824);
  CHECK(entry(json, "device_thread.spin")["value"] == "250us");
  CHECK(entry(json, "device_thread.histograms")["value"] == true);
  CHECK(entry(json, "device_thread.histograms")["source"]["kind"] == "default");
}

TEST_CASE("cox config --json FILE writes the same to the file beside the table") {
  const TemporaryFile file("");
  const Command command = Command::run({"config", "--json", file.path()});
  REQUIRE(command.code == ExitCode::Ok);
  CHECK_FALSE(row(command.out, "host.devices").empty());
  std::ifstream written(file.path());
  CHECK(nlohmann::json::parse(written)["settings"].size() == cox::known_settings().size());
}

TEST_CASE("cox config --json refuses a file that cannot be written") {
  const Command command = Command::run({"config", "--json", "/nowhere/config.json"});
  CHECK(command.code == ExitCode::BadArguments);
  CHECK(command.err == "cox config: --json: cannot write '/nowhere/config.json': No such file or directory\n");
}

TEST_CASE("Every command ends with code 2 and one line where the settings are wrong") {
  const TemporaryFile file("[host]\ndevicez = 3\n");
  for (const std::string name : {"config", "devices", "stress"}) {
    const auto refused = [&] {
      const Command command = Command::run({name});
      CHECK(command.code == ExitCode::BadArguments);
      CHECK(command.out.empty());
      return command.err;
    };
    {
      const Variable config("COX_CONFIG", file.path());
      CHECK(refused() == "cox " + name + ": host.devicez is 3 (" + file.path() +
                             ":2:1): there is no such setting; the nearest is host.devices\n");
    }
    const Variable devices("COX_HOST_DEVICES", "many");
    CHECK(refused() == "cox " + name +
                           ": host.devices is \"many\" (environment COX_HOST_DEVICES): expected a whole number from 1 "
                           "to 65535\n");
  }
}
