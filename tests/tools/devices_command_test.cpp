#include <coxswain/servers/host/server/host_options.hpp>
#include <coxswain/tests/tools/command.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <nlohmann/json.hpp>

using cox::tools::Command;
using cox::tools::ExitCode;

TEST_CASE("cox devices shows a row for each device, and why there are no CUDA devices if there are none") {
  cox::reset_host_options();
  const Command command = Command::run({"devices"});
  CHECK(command.code == ExitCode::Ok);
  for (const char* part : {"id", "kind", "name", "memory", "threads", "host:0", "host:3"})
    CHECK(command.out.find(part) != std::string::npos);
  const bool there = command.out.find("cuda:0") != std::string::npos;
  CHECK(there == (command.out.find("no CUDA device is available: ") == std::string::npos));
}

TEST_CASE("cox devices --json gives an object for each device that was asked for") {
  const Command command = Command::run({"devices", "--devices", "host:2", "--json"});
  REQUIRE(command.code == ExitCode::Ok);
  const auto json = nlohmann::json::parse(command.out);
  REQUIRE(json.size() == 2);
  CHECK(json[1]["id"] == "host:1");
  CHECK(json[1]["kind"] == "host");
  CHECK(json[1]["memory_bytes"].get<std::uint64_t>() > 0);
  CHECK(json[1]["threads"].get<std::uint64_t>() > 0);
}
