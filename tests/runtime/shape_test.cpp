#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/base/shape.hpp>

#include <cstdint>

using cox::Shape;

TEST_CASE("The element count of rank 0 is one, of a zero extent zero, and of what does not fit nothing") {
  REQUIRE(cox::element_count(Shape{}) == 1U);
  REQUIRE(cox::element_count(Shape{2, 3, 5}) == 30U);
  REQUIRE(cox::element_count(Shape{SIZE_MAX, SIZE_MAX, 0}) == 0U);
  REQUIRE(cox::element_count(Shape{SIZE_MAX, 2}) == std::nullopt);
}

TEST_CASE("Contiguous strides are row-major and never zero") {
  REQUIRE(cox::contiguous_strides(Shape{}) == cox::Strides{});
  REQUIRE(cox::contiguous_strides(Shape{2, 3, 5}) == cox::Strides{15, 5, 1});
  REQUIRE(cox::contiguous_strides(Shape{2, 0, 5}) == cox::Strides{5, 5, 1});
  REQUIRE(cox::to_string(Shape{2, 3}) == "[2, 3]");
}

TEST_CASE("Sizes that do not fit are noticed") {
  REQUIRE(cox::checked_product(SIZE_MAX, 2) == std::nullopt);
  REQUIRE(cox::checked_sum(SIZE_MAX, 1) == std::nullopt);
  REQUIRE(cox::checked_round_up(SIZE_MAX, 512) == std::nullopt);
  REQUIRE(cox::checked_round_up(513, 512) == 1024U);
  REQUIRE(cox::checked_round_up(512, 512) == 512U);
}
