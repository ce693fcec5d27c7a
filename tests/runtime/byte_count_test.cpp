#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/byte_count.hpp>

#include <cstdint>

using cox::format_byte_count;

TEST_CASE("Byte counts are shown in decimal units and exactly") {
  REQUIRE(format_byte_count(0) == "0 B");
  REQUIRE(format_byte_count(999) == "999 B");
  REQUIRE(format_byte_count(1500) == "1.50 kB (1500 B)");
  REQUIRE(format_byte_count(std::size_t{1} << 30) == "1.07 GB (1073741824 B)");
  REQUIRE(format_byte_count(SIZE_MAX) == "18.45 EB (18446744073709551615 B)");
  REQUIRE(format_byte_count(999'999) == "1.00 MB (999999 B)");
}
