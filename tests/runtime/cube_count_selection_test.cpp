#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/launch/cube_count_selection.hpp>

using cox::CubeCount;

TEST_CASE("A cube count is spread over the axes as in the seeds") {
  REQUIRE(cox::spread_cube_count({32, 32, 32}, 2048) == CubeCount::Static{32, 32, 2});
  REQUIRE(cox::spread_cube_count({48, 32, 16}, 3177) == CubeCount::Static{25, 32, 4});
  REQUIRE(cox::spread_cube_count({48, 32, 16}, 48) == CubeCount::Static{48, 1, 1});
  REQUIRE(cox::spread_cube_count({48, 32, 16}, 0).is_empty());
}

TEST_CASE("A selection knows whether cubes will be idle") {
  cox::HardwareProperties hardware;
  hardware.max_cube_count = {48, 32, 16};
  REQUIRE(cox::CubeCountSelection(hardware, 3177).has_idle());
  REQUIRE(cox::CubeCountSelection(hardware, 3177).actual() == 3200);
  REQUIRE_FALSE(cox::CubeCountSelection(hardware, 96).has_idle());
}

TEST_CASE("Only a static count is known to be empty") {
  REQUIRE(CubeCount(1, 0, 1).is_empty());
  REQUIRE_FALSE(CubeCount::single().is_empty());
  REQUIRE_FALSE(CubeCount::dynamic(cox::Binding{}).is_empty());
}
