#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/runtime/config/config_error.hpp>
#include <coxswain/runtime/config/settings.hpp>
#include <coxswain/runtime/config/settings_file.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>

using cox::ConfigError;
using cox::read_settings_file;
using cox::SettingsEnvironment;
using cox::test::kind_of;
using cox::test::message_of;
using cox::test::TemporaryFile;

namespace {

/// Another working directory, empty, for one scope.
class EmptyDirectory {
 public:
  EmptyDirectory() {
    std::filesystem::create_directory(path_);
    std::filesystem::current_path(path_);
  }
  EmptyDirectory(const EmptyDirectory&) = delete;
  EmptyDirectory& operator=(const EmptyDirectory&) = delete;
  ~EmptyDirectory() {
    std::filesystem::current_path(former_);
    std::filesystem::remove_all(path_);
  }

 private:
  std::filesystem::path former_ = std::filesystem::current_path();
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("coxswain_test_" + std::to_string(::getpid()));
};

}  // namespace

TEST_CASE("The settings file is ./coxswain.toml if there is one") {
  const EmptyDirectory here;
  CHECK_FALSE(read_settings_file({}));
  std::ofstream("coxswain.toml") << "[host]\n";
  const auto file = read_settings_file({});
  REQUIRE(file);
  CHECK(file->name == "coxswain.toml");
  CHECK(file->text == "[host]\n");
}

TEST_CASE("COX_CONFIG names the settings file, which is then read instead of ./coxswain.toml") {
  const EmptyDirectory here;
  std::ofstream("coxswain.toml") << "not this one";
  const TemporaryFile scratch("[log]\n");
  const auto file = read_settings_file({{"COX_CONFIG", scratch.path()}});
  REQUIRE(file);
  CHECK(file->name == scratch.path());
  CHECK(file->text == "[log]\n");
}

TEST_CASE("A settings file that is named and cannot be read is refused") {
  const auto refusal = [](const std::string& path) {
    const SettingsEnvironment environment{{"COX_CONFIG", path}};
    CHECK(kind_of<ConfigError>([&] { (void)read_settings_file(environment); }) == ConfigError::Kind::Unreadable);
    return message_of([&] { (void)read_settings_file(environment); });
  };
  CHECK(refusal("/nowhere/cox.toml") ==
        "the settings file \"/nowhere/cox.toml\" (environment COX_CONFIG) cannot be read: No such file or directory");
  CHECK_THAT(refusal("/"), Catch::Matchers::ContainsSubstring("it is a directory"));
  CHECK_THAT(refusal("/dev/zero"), Catch::Matchers::ContainsSubstring("it is not a regular file"));
  const TemporaryFile large(std::string((std::size_t{1} << 20U) + 1, '\n'));
  CHECK_THAT(refusal(large.path()), Catch::Matchers::ContainsSubstring("it is larger than 1.05 MB"));
  CHECK_THAT(refusal(""), Catch::Matchers::ContainsSubstring("the settings file \"\""));
}

TEST_CASE("A coxswain.toml of the working directory names no library to load, a file that COX_CONFIG names may") {
  for (const char* const text : {"[cuda]\ndriver = \"./evil.so\"\n", "[compilation]\nnvrtc = \"./evil.so\"\n",
                                 "[collectives]\nnccl = \"./evil.so\"\n"}) {
    const EmptyDirectory here;
    std::ofstream("coxswain.toml") << text;
    const auto load = [](const SettingsEnvironment& environment) {
      (void)cox::Settings(cox::SettingsOrigin{.file = read_settings_file(environment), .environment = environment});
    };
    CHECK(kind_of<ConfigError>([&] { load({}); }) == ConfigError::Kind::OutOfRange);
    CHECK(message_of([&] { load({}); }).find("COX_CONFIG") != std::string::npos);
    CHECK_NOTHROW(load({{"COX_CONFIG", "coxswain.toml"}}));
  }
  const EmptyDirectory here;
  std::ofstream("coxswain.toml") << "[cuda]\ndriver = \"\"\n[host]\ndevices = 3\n";
  const cox::Settings settings(cox::SettingsOrigin{.file = read_settings_file({}), .environment = {}});
  CHECK(settings.get<std::uint64_t>("host.devices") == 3);
}

TEST_CASE("A coxswain.toml may name a library where the environment or the program names another one") {
  const EmptyDirectory here;
  std::ofstream("coxswain.toml") << "[cuda]\ndriver = \"./evil.so\"\n";
  const auto driver_of = [](const SettingsEnvironment& environment,
                            std::map<std::string, cox::SettingValue, std::less<>> chosen) {
    const cox::SettingsOrigin origin{.file = read_settings_file(environment), .environment = environment};
    return cox::Settings(origin, chosen).get<std::string>("cuda.driver");
  };
  CHECK(driver_of({{"COX_CUDA_DRIVER", "libcuda.so"}}, {}) == "libcuda.so");
  CHECK(driver_of({}, {{"cuda.driver", std::string("libcuda.so")}}) == "libcuda.so");
  CHECK(kind_of<ConfigError>([&] { (void)driver_of({{"COX_COLLECTIVES_NCCL", "libnccl.so"}}, {}); }) ==
        ConfigError::Kind::OutOfRange);
}

TEST_CASE("A pipe named coxswain.toml is refused instead of waited for, and /dev/null is an empty file") {
  const EmptyDirectory here;
  REQUIRE(::mkfifo("coxswain.toml", 0600) == 0);
  CHECK(message_of([] { (void)read_settings_file({}); }) ==
        "the settings file \"coxswain.toml\" cannot be read: it is not a regular file");
  const auto file = read_settings_file({{"COX_CONFIG", "/dev/null"}});
  REQUIRE(file);
  CHECK(file->text.empty());
}
