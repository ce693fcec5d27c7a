#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/tensor/memory_layout_policy.hpp>

#include <cstdint>

using cox::test::mentions;
using cox::test::message_of;

using cox::MemoryLayoutDescriptor;
using cox::PitchedLayoutPolicy;
using cox::Shape;
using cox::Strides;

namespace {

cox::TensorExtent optimized(Shape shape, std::size_t elem_size = 4) {
  return PitchedLayoutPolicy(512).extent(MemoryLayoutDescriptor::optimized(std::move(shape), elem_size));
}

void require_extent(const Shape& shape, std::size_t size, const Strides& strides, std::size_t elem_size = 4) {
  const auto extent = optimized(shape, elem_size);
  INFO(cox::to_string(shape));
  REQUIRE(extent.size == size);
  REQUIRE(extent.strides == strides);
}

}  // namespace

TEST_CASE("Rows are padded as the reference says") {
  require_extent({3, 5}, 96, {8, 1});
  require_extent({4, 128}, 2048, {128, 1});
  require_extent({4, 200}, 4096, {256, 1});
  require_extent({2, 3, 5}, 192, {24, 8, 1});
  require_extent({2, 3, 1}, 24, {3, 1, 1});
  require_extent({5}, 32, {1});
}

TEST_CASE("Rank 0 is one element") {
  require_extent({}, 4, {});
  require_extent({}, 24, {}, 24);
}

TEST_CASE("Empty tensors have strides that are not zero") {
  require_extent({2, 0}, 0, {1, 1});
  require_extent({0}, 0, {1});
  require_extent({0, 5}, 32, {8, 1});
  require_extent({0, 3, 5}, 32, {24, 8, 1});
}

TEST_CASE("Rows are a whole number of elements, also of wide and odd ones") {
  require_extent({2, 5}, 2 * 256, {8, 1}, 32);
  require_extent({2, 3}, 2 * 3072, {3, 1}, 1024);
  require_extent({2, 5}, 2 * 192, {16, 1}, 12);
  require_extent({2, 5}, 2 * 384, {16, 1}, 24);
}

TEST_CASE("The contiguous strategy pads nothing") {
  const auto extent = PitchedLayoutPolicy(512).extent(MemoryLayoutDescriptor::contiguous({3, 5}, 4));
  REQUIRE(extent.size == 60);
  REQUIRE(extent.strides == Strides{5, 1});
}

TEST_CASE("Huge tensors and elements of no size are refused") {
  REQUIRE_THROWS_AS(optimized({SIZE_MAX, 2}), cox::IoError);
  REQUIRE_THROWS_AS(optimized({SIZE_MAX / 8, 1}, 8 * 2), cox::IoError);
  REQUIRE_THROWS_AS(optimized({SIZE_MAX / 33, 5}, 6), cox::IoError);
  REQUIRE(mentions(message_of([&] { (void)optimized({SIZE_MAX}); }), {"exceeds the address space"}));
  REQUIRE(mentions(message_of([&] { (void)optimized({2}, 0); }), {"elements of 0 B"}));
}
