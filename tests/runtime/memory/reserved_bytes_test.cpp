#include <coxswain/runtime/memory/reserved_bytes.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstddef>
#include <limits>

using namespace cox;

TEST_CASE("L7: there is room up to the capacity, and none while more than it is reserved", "[memory]") {
  ReservedBytes reserved{.capacity = 100};
  CHECK(reserved.has_room_for(100));
  CHECK_FALSE(reserved.has_room_for(101));
  reserved.add(60);
  CHECK(reserved.has_room_for(40));
  CHECK_FALSE(reserved.has_room_for(41));
  CHECK_FALSE(reserved.has_room_for(std::numeric_limits<std::size_t>::max()));
  reserved.capacity = 50;
  CHECK_FALSE(reserved.has_room_for(1));
  reserved.remove(20);
  CHECK(reserved.has_room_for(10));
  CHECK(reserved.now == 40);
  CHECK(reserved.peak == 60);
}
