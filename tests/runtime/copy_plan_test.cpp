#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/tensor/copy_plan.hpp>

#include <cstdint>
#include <optional>

using cox::test::mentions;
using cox::test::message_of;

using cox::CopyDescriptor;
using cox::IoError;
using cox::Shape;
using cox::Strides;

namespace {

CopyDescriptor tensor(Shape shape, Strides strides, std::size_t memory = 1 << 20, std::size_t elem_size = 4) {
  return {{cox::ManagedMemory::create({}, memory), 0, 0, {}}, std::move(shape), std::move(strides), elem_size};
}

std::optional<IoError::Kind> refusal(const CopyDescriptor& descriptor) {
  try {
    (void)cox::plan_copy(descriptor);
  } catch (const IoError& error) {
    return error.kind();
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("A padded tensor is copied row by row, a dense one at once") {
  const auto padded = cox::plan_copy(tensor({2, 3, 5}, {24, 8, 1}));
  REQUIRE(padded.rows == 6);
  REQUIRE(padded.row_bytes == 20);
  REQUIRE(padded.pitch == 32);
  REQUIRE_FALSE(padded.is_linear());
  REQUIRE(cox::plan_copy(tensor({2, 3, 5}, {15, 5, 1})).is_linear());
}

TEST_CASE("Rank 0 is copied as one element") { REQUIRE(cox::plan_copy(tensor({}, {})).size() == 4); }

TEST_CASE("The pitch of a single row is ignored") {
  const auto row = cox::plan_copy(tensor({1, 3}, {SIZE_MAX / 2, 1}, 12));
  REQUIRE(row.size() == 12);
  REQUIRE(row.is_linear());
}

TEST_CASE("Copying an empty tensor is a no-op, whatever its strides") {
  REQUIRE(cox::plan_copy(tensor({2, 0}, {0, 1})).size() == 0);
  REQUIRE(cox::plan_copy(tensor({0}, {7}, 0)).size() == 0);
  REQUIRE(cox::plan_copy(tensor({SIZE_MAX, SIZE_MAX, 0}, {1, 1, 1}, 0)).size() == 0);
}

TEST_CASE("Strides other than row-major with a padded last dimension are refused") {
  REQUIRE(refusal(tensor({2, 3}, {1, 2})) == IoError::Kind::UnsupportedStrides);
  REQUIRE(refusal(tensor({2, 3}, {2, 1})) == IoError::Kind::UnsupportedStrides);
  REQUIRE(refusal(tensor({2, 3}, {0, 1})) == IoError::Kind::UnsupportedStrides);
  REQUIRE(refusal(tensor({2, 3, 5}, {40, 8, 1})) == IoError::Kind::UnsupportedStrides);
  REQUIRE(refusal(tensor({3}, {2})) == IoError::Kind::UnsupportedStrides);
}

TEST_CASE("Ranks, element sizes and bounds are checked, and the message has the figures") {
  REQUIRE(refusal(tensor({2, 3}, {1})) == IoError::Kind::RankMismatch);
  REQUIRE(refusal(tensor({2, 3}, {3, 1}, 24, 0)) == IoError::Kind::ElementSize);
  REQUIRE(refusal(tensor({2, 3}, {3, 1}, 23)) == IoError::Kind::OutOfBounds);
  REQUIRE(refusal(tensor({2, 3}, {SIZE_MAX / 2, 1})) == IoError::Kind::OutOfBounds);
  REQUIRE(refusal({cox::Binding{}, {3}, {1}, 4}) == IoError::Kind::NotFound);
  REQUIRE(refusal(tensor({SIZE_MAX, 3}, {3, 1})) == IoError::Kind::BufferTooBig);
  REQUIRE_FALSE(refusal(tensor({2, 3}, {4, 1}, 28)));  // the last row needs no padding
  REQUIRE(mentions(message_of([&] { (void)cox::plan_copy(tensor({2, 3}, {3, 1}, 23)); }),
                   {"shape [2, 3]", "elements of 4 B", "23 B"}));
}

TEST_CASE("Host bytes of a wrong number are refused with both sizes") {
  const auto descriptor = tensor({2, 3}, {3, 1});
  REQUIRE(mentions(message_of([&] { (void)cox::require_host_size(cox::plan_copy(descriptor), descriptor, 48); }),
                   {"needs 24 B", "48 B were given"}));
}
