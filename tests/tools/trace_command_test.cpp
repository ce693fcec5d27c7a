#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>
#include <coxswain/tests/tools/command.hpp>

#include <coxswain/runtime/telemetry/world_member.hpp>
#include <coxswain/runtime/trace/chrome_trace.hpp>
#include <coxswain/runtime/trace/trace.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

using Catch::Matchers::ContainsSubstring;
using cox::test::TemporaryFolder;
using cox::tools::Command;
using cox::tools::ExitCode;

namespace {

std::string write_trace(const TemporaryFolder& folder, std::uint16_t process) {
  cox::trace::start({});
  {
    const cox::trace::Span span("work", cox::trace::Category::Client);
  }
  cox::set_world_member(cox::WorldMember{.process = process, .processes = 2, .host = "here"});
  const std::filesystem::path file = cox::file_of_process(folder.path() / "trace.json");
  cox::trace::write_chrome_trace(file, cox::trace::stop());
  cox::set_world_member({});
  return file.string();
}

}  // namespace

TEST_CASE("cox trace merges the files of the processes of a world") {
  const TemporaryFolder folder;
  const std::string first = write_trace(folder, 0);
  const std::string second = write_trace(folder, 1);
  const std::string merged = (folder.path() / "all.json").string();
  const Command command = Command::run({"trace", first, second, "--output", merged});
  INFO(command.err);
  CHECK(command.code == ExitCode::Ok);
  std::ifstream in(merged);
  const auto json = nlohmann::json::parse(in);
  std::size_t found = 0;
  for (const auto& event : json["traceEvents"])
    if (event["name"] == "work") ++found;
  CHECK(found == 2);
}

TEST_CASE("cox trace names a file that it cannot merge") {
  const TemporaryFolder folder;
  const std::string text = folder.make_file("text", "no JSON").string();
  const std::string merged = (folder.path() / "all.json").string();
  const auto complaint = [&](const std::string& file) {
    const Command command = Command::run({"trace", file, "--output", merged});
    CHECK(command.code == ExitCode::BadArguments);
    return command.err;
  };
  CHECK_THAT(complaint(text), ContainsSubstring("'" + text + "' is no JSON"));
  CHECK_THAT(complaint(folder.path() / "none"), ContainsSubstring("cannot be read"));
  const std::string other = folder.make_file("other.json", R"({"traceEvents": []})").string();
  CHECK_THAT(complaint(other), ContainsSubstring("was not written by a process of a world"));
  CHECK_FALSE(std::filesystem::exists(merged));
}

TEST_CASE("cox trace does not write over a file that it merges, whatever its path") {
  const TemporaryFolder folder;
  const std::string first = write_trace(folder, 0);
  const std::string second = write_trace(folder, 1);
  const std::string link = (folder.path() / "link.json").string();
  std::filesystem::create_symlink(second, link);
  const auto size = std::filesystem::file_size(second);
  for (const std::string& output : {second, (folder.path() / "." / "trace.1.json").string(), link}) {
    const Command command = Command::run({"trace", first, second, "--output", output});
    CHECK(command.code == ExitCode::BadArguments);
    CHECK_THAT(command.err, ContainsSubstring("--output: '" + output + "' is the file '" + second + "'"));
  }
  CHECK(std::filesystem::file_size(second) == size);
}
