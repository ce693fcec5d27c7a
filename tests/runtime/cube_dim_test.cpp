#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/launch/cube_dim.hpp>

#include <cstdint>

using cox::CubeDim;

TEST_CASE("A cube dim for so many units is a plane wide and a power of two of planes high") {
  const cox::HardwareProperties hardware;
  REQUIRE(CubeDim::for_units(hardware, 0) == CubeDim{32, 1, 1});
  REQUIRE(CubeDim::for_units(hardware, 100) == CubeDim{32, 2, 1});
  REQUIRE(CubeDim::for_units(hardware, 1 << 20) == CubeDim{32, 8, 1});
  cox::HardwareProperties small;
  small.max_units_per_cube = 64;
  REQUIRE(CubeDim::for_units(small, 1 << 20) == CubeDim{32, 2, 1});
  cox::HardwareProperties cpu;
  cpu.cpu_threads = 6;
  REQUIRE(CubeDim::for_units(cpu, 1 << 20) == CubeDim{32, 6, 1});
  REQUIRE(CubeDim::for_units(cpu, 3) == CubeDim{32, 3, 1});
  REQUIRE(CubeDim::for_units(cpu, 0) == CubeDim{32, 1, 1});
}

TEST_CASE("The units of a cube are counted without overflow") {
  REQUIRE(CubeDim{256, 2, 2}.unit_count() == 1024);
  REQUIRE(CubeDim{UINT32_MAX, UINT32_MAX, UINT32_MAX}.unit_count() == UINT64_MAX);
  REQUIRE(CubeDim{1024, 1024, 64}.can_contain({1024, 1, 1}));
  REQUIRE_FALSE(CubeDim{1024, 1024, 64}.can_contain({1, 1, 65}));
}
