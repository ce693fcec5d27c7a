#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/bytes/allocation_property.hpp>

#include <string>

using cox::AllocationProperty;

TEST_CASE("Every allocation property has its name") {
  REQUIRE(to_string(AllocationProperty::Native) == std::string("native"));
  REQUIRE(to_string(AllocationProperty::Pinned) == std::string("pinned"));
  REQUIRE(to_string(AllocationProperty::File) == std::string("file"));
  REQUIRE(to_string(AllocationProperty::Device) == std::string("device"));
  REQUIRE(to_string(AllocationProperty::Other) == std::string("other"));
}
