#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/tensor/vector_sizes.hpp>

#include <cstddef>

using cox::HardwareProperties;
using cox::io_optimized_vector_sizes;
using cox::IoError;
using cox::VectorSizes;
using cox::test::kind_of;

TEST_CASE("Vector sizes are the powers of two that one load can move, best first") {
  const HardwareProperties hardware{.load_width_bits = 128, .max_vector_size = 16};
  CHECK(io_optimized_vector_sizes(hardware, 1) == VectorSizes{16, 8, 4, 2, 1});
  CHECK(io_optimized_vector_sizes(hardware, 2) == VectorSizes{8, 4, 2, 1});
  CHECK(io_optimized_vector_sizes(hardware, 4) == VectorSizes{4, 2, 1});
  CHECK(io_optimized_vector_sizes(hardware, 8) == VectorSizes{2, 1});
  CHECK(io_optimized_vector_sizes(hardware, 16) == VectorSizes{1});
}

TEST_CASE("Elements wider than a load are moved one by one, and there are none of no size") {
  const HardwareProperties hardware{.load_width_bits = 128, .max_vector_size = 16};
  CHECK(io_optimized_vector_sizes(hardware, 17) == VectorSizes{1});
  CHECK(io_optimized_vector_sizes(hardware, 32) == VectorSizes{1});
  CHECK(io_optimized_vector_sizes(hardware, SIZE_MAX) == VectorSizes{1});
  CHECK(kind_of<IoError>([&] { (void)io_optimized_vector_sizes(hardware, 0); }) == IoError::Kind::ElementSize);
}

TEST_CASE("The device's longest vector bounds them, and a length that is no power of two is rounded down") {
  CHECK(io_optimized_vector_sizes({.load_width_bits = 128, .max_vector_size = 4}, 1) == VectorSizes{4, 2, 1});
  CHECK(io_optimized_vector_sizes({.load_width_bits = 96, .max_vector_size = 16}, 4) == VectorSizes{2, 1});
  CHECK(io_optimized_vector_sizes({.load_width_bits = 128, .max_vector_size = 16}, 3) == VectorSizes{4, 2, 1});
  CHECK(io_optimized_vector_sizes({.load_width_bits = 0, .max_vector_size = 0}, 4) == VectorSizes{1});
}
