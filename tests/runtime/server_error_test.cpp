#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/runtime/io_error.hpp>
#include <coxswain/runtime/launch_error.hpp>
#include <coxswain/runtime/server_error.hpp>

#include <stdexcept>
#include <string>

namespace {

const cox::Place elsewhere{{.type = 0, .index = 2}, cox::StreamId{9}};

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
          "DeviceId(type=0, index=2), stream 9 is unhealthy: 5 queued operations failed, the first with: one (3 later "
          "failures were not kept)");
}

TEST_CASE("Out of memory says what was asked for, what is in use and what there is") {
  const auto error = cox::IoError::out_of_memory(elsewhere, {.requested = 4096, .in_use = 512, .capacity = 2048},
                                                 std::source_location::current());
  REQUIRE(error.sizes()->requested == 4096);
  REQUIRE(
      std::string(error.what()) ==
      "out of memory: cannot allocate 4.10 kB (4096 B) on DeviceId(type=0, index=2), stream 9: 512 B of 2.05 kB (2048 "
      "B) are in use");
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
