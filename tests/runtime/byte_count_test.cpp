#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/base/byte_count.hpp>

#include <cstdint>

using cox::exact_byte_count;
using cox::format_byte_count;
using cox::parse_byte_count;

TEST_CASE("Byte counts are shown in decimal units and exactly") {
  REQUIRE(format_byte_count(0) == "0 B");
  REQUIRE(format_byte_count(999) == "999 B");
  REQUIRE(format_byte_count(1500) == "1.50 kB (1500 B)");
  REQUIRE(format_byte_count(std::size_t{1} << 30) == "1.07 GB (1073741824 B)");
  REQUIRE(format_byte_count(SIZE_MAX) == "18.45 EB (18446744073709551615 B)");
  REQUIRE(format_byte_count(999'999) == "1.00 MB (999999 B)");
}

TEST_CASE("Byte counts are read with decimal and binary units") {
  CHECK(parse_byte_count("64") == 64U);
  CHECK(parse_byte_count("64B") == 64U);
  CHECK(parse_byte_count("4KiB") == 4096U);
  CHECK(parse_byte_count("2GiB") == std::size_t{1} << 31);
  CHECK(parse_byte_count("3MB") == 3'000'000U);
  for (const char* text : {"", "KiB", "-1", "1.5MiB", "1 MiB", "1kb", "99999999999GiB", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK(parse_byte_count(text) == std::nullopt);
  }
}

TEST_CASE("Exact byte counts have the largest binary unit that divides them, and are read back as they were") {
  CHECK(exact_byte_count(0) == "0B");
  CHECK(exact_byte_count(1000) == "1000B");
  CHECK(exact_byte_count(1536) == "1536B");
  CHECK(exact_byte_count(std::size_t{64} << 20) == "64MiB");
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{4096}, std::size_t{3} << 30, std::size_t{SIZE_MAX}})
    CHECK(parse_byte_count(exact_byte_count(bytes)) == bytes);
}
