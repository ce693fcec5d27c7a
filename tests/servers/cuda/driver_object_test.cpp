// Owners of objects of the driver, over a function that stands in for the driver's.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/driver/driver_object.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

using cox::detail::Driver;
using cox::detail::DriverMemory;
using cox::detail::DriverStream;

namespace {

std::vector<CUdeviceptr> freed_addresses;
CUresult freeing_result = CUDA_SUCCESS;

CUresult free_address(CUdeviceptr address) {
  freed_addresses.push_back(address);
  return freeing_result;
}

/// A driver that frees memory as above.
const Driver& driver_that_frees() {
  static const Driver driver = [] {
    freed_addresses.reserve(16);
    Driver made;
    made.memory_free = free_address;
    return made;
  }();
  freed_addresses.clear();
  freeing_result = CUDA_SUCCESS;
  return driver;
}

DriverMemory memory_at(CUdeviceptr address, const Driver& driver) {
  DriverMemory memory;
  *memory.out(driver) = address;
  return memory;
}

using Addresses = std::vector<CUdeviceptr>;

}  // namespace

TEST_CASE("An object of the driver is destroyed once, by its last owner") {
  const Driver& driver = driver_that_frees();
  {
    const DriverMemory empty;
    CHECK_FALSE(empty);
    DriverMemory first = memory_at(1, driver);
    CHECK(first);
    DriverMemory second = std::move(first);
    CHECK(second.get() == 1);
    CHECK(freed_addresses.empty());
  }
  CHECK(freed_addresses == Addresses{1});
  STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<DriverStream>);
  STATIC_REQUIRE(std::is_nothrow_move_constructible_v<DriverStream>);
}

TEST_CASE("An object is destroyed when its owner is given another, or none") {
  const Driver& driver = driver_that_frees();
  DriverMemory memory = memory_at(1, driver);
  memory = memory_at(2, driver);
  CHECK(freed_addresses == Addresses{1});
  DriverMemory& same = memory;
  memory = std::move(same);
  CHECK(memory.get() == 2);
  *memory.out(driver) = 3;
  CHECK(freed_addresses == Addresses{1, 2});
  memory.reset();
  memory.reset();
  CHECK(freed_addresses == Addresses{1, 2, 3});
  CHECK_FALSE(memory);
}

TEST_CASE("An object that cannot be destroyed is given up without an exception") {
  const Driver& driver = driver_that_frees();
  DriverMemory memory = memory_at(1, driver);
  freeing_result = CUDA_ERROR_INVALID_VALUE;
  memory.reset();
  CHECK_FALSE(memory);
  memory.reset();
  CHECK(freed_addresses == Addresses{1});
}
