#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <stdexcept>
#include <string>

namespace {

const cox::Location elsewhere{{.type = 0, .index = 2}, cox::StreamId{9}};

}  // namespace

TEST_CASE("L12: an unhealthy stream names its device, its first cause, and keeps all of them") {
  const auto error = cox::ServerError::unhealthy(
      elsewhere,
      {std::make_exception_ptr(std::runtime_error("one")), std::make_exception_ptr(std::runtime_error("two"))}, 3,
      std::source_location::current());
  REQUIRE(error.kind() == cox::ServerError::Kind::Unhealthy);
  REQUIRE(error.errors().size() == 2);
  REQUIRE(cox::describe(error.cause()) == "one");
  REQUIRE(std::string(error.what()) ==
          "host:2, stream 9 is unhealthy: 5 queued operations failed, the first with: one (3 later "
          "failures were not kept)");
}

TEST_CASE("Out of memory says what was asked for, what is in use and what there is") {
  const auto error = cox::IoError::out_of_memory(elsewhere, {.requested = 4096, .in_use = 512, .capacity = 2048},
                                                 std::source_location::current());
  REQUIRE(error.sizes()->requested == 4096);
  REQUIRE(std::string(error.what()) ==
          "out of memory: cannot allocate 4.10 kB (4096 B) on host:2, stream 9: 512 B of 2.05 kB (2048 "
          "B) are in use");
}

TEST_CASE("The report of an out-of-memory error is in its own text, and in no text of what it causes") {
  const auto cause = std::make_exception_ptr(
      cox::IoError::out_of_memory(elsewhere, {.requested = 4096, .in_use = 512, .capacity = 2048},
                                  std::source_location::current(), "biggest owners: a.cpp:1 512 B"));
  CHECK(cox::describe(cause).ends_with("are in use; biggest owners: a.cpp:1 512 B"));
  const auto outer =
      std::make_exception_ptr(cox::ServerError::unhealthy(elsewhere, {cause}, 0, std::source_location::current()));
  CHECK(cox::describe(outer).find("cannot allocate 4.10 kB") != std::string::npos);
  CHECK(cox::describe(outer).find("biggest owners") == std::string::npos);
  const std::string chain = cox::error_chain(outer);
  CHECK(chain.find("cannot allocate") == chain.rfind("cannot allocate"));
  CHECK(chain.find("biggest owners") != std::string::npos);
}

TEST_CASE("L12: all failures of a stream are found by their type") {
  const auto launch = std::make_exception_ptr(cox::LaunchError(cox::LaunchError::Kind::KernelFailed, "k failed"));
  const auto error = cox::ServerError::unhealthy(
      elsewhere, {std::make_exception_ptr(std::runtime_error("one")), launch}, 0, std::source_location::current());
  const auto* const found = cox::find_cause<cox::LaunchError>(error, cox::LaunchError::Kind::KernelFailed);
  REQUIRE(found != nullptr);
  CHECK(std::string(found->what()) == "k failed");
}

TEST_CASE("An exceeded limit says what was asked for and what is allowed") {
  const auto error = cox::LaunchError::too_many_resources(
      "kernel 'k'", {cox::ResourceLimit::Resource::CubeDim, {2048, 1, 1}, {1024, 1024, 64}},
      std::source_location::current());
  REQUIRE(std::string(error.what()) ==
          "kernel 'k': the cube dim exceeds the device's limit: requested (2048, 1, 1), maximum (1024, 1024, 64)");
  REQUIRE(error.limit()->requested[0] == 2048);
}

TEST_CASE("Every kind of error has a name") {
  REQUIRE(std::string(cox::to_string(cox::IoError::Kind::StaleHandle)) == "stale_handle");
  REQUIRE(std::string(cox::to_string(cox::LaunchError::Kind::KernelFailed)) == "kernel_failed");
  REQUIRE(std::string(cox::to_string(cox::ServerError::Kind::Unhealthy)) == "unhealthy");
  REQUIRE(std::string(cox::to_string(cox::ServerError::Kind::Unsupported)) == "unsupported");
  REQUIRE(std::string(cox::to_string(cox::ServerError::Kind::Graph)) == "graph");
}
