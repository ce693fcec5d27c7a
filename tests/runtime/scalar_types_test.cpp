#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/launch/scalar_types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

using cox::scalar_type_of;
using cox::scalar_words;
using cox::ScalarType;
using cox::ScalarTypes;

namespace {

enum class Colour : std::uint16_t { Red };
struct ThreeWords {
  std::array<std::uint64_t, 3> extents;
};

static_assert(scalar_type_of<float> == ScalarType::F32 && scalar_type_of<const double> == ScalarType::F64);
static_assert(scalar_type_of<std::int8_t> == ScalarType::I8 && scalar_type_of<std::uint64_t> == ScalarType::U64);
static_assert(scalar_type_of<long> == scalar_type_of<long long> && scalar_type_of<int> == ScalarType::I32);
static_assert(scalar_type_of<Colour> == ScalarType::U16 && scalar_type_of<bool> == ScalarType::Bool);
static_assert(scalar_type_of<ThreeWords> == ScalarType::Object && scalar_type_of<float*> == ScalarType::Object);
static_assert(scalar_words<char> == 1 && scalar_words<ThreeWords> == 3);
static_assert(to_string(ScalarType::F64) == "f64" && to_string(ScalarType::U8) == "u8");

}  // namespace

TEST_CASE("Words are read as the type that they were passed as, and as no other") {
  const std::uint64_t bits =
      ScalarTypes::append<std::uint64_t>(ScalarTypes::append<ThreeWords>(ScalarTypes::append<float>(0)));
  const ScalarTypes types(bits, 5);
  CHECK(types.match(0, ScalarType::F32, 1));
  CHECK_FALSE(types.match(0, ScalarType::U32, 1));
  CHECK_FALSE(types.match(0, ScalarType::Object, 1));
  CHECK(types.match(1, ScalarType::Object, 3));
  CHECK_FALSE(types.match(1, ScalarType::Object, 2));  // shorter
  CHECK_FALSE(types.match(1, ScalarType::Object, 4));  // longer
  CHECK_FALSE(types.match(1, ScalarType::U64, 1));
  CHECK_FALSE(types.match(2, ScalarType::Object, 2));  // begins within
  CHECK_FALSE(types.match(4, ScalarType::F32, 1));
  CHECK_FALSE(types.match(4, ScalarType::I64, 1));
  CHECK(types[5] == ScalarType::Unknown);
  CHECK(ScalarTypes()[0] == ScalarType::Unknown);
  CHECK(ScalarTypes(0, 3).match(1, ScalarType::I64, 1));  // not recorded
}

TEST_CASE("The types of the last words are recorded, earlier ones are unknown") {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < ScalarTypes::max_words + 3; ++i) bits = ScalarTypes::append<std::int16_t>(bits);
  const ScalarTypes types(bits, ScalarTypes::max_words + 3);
  CHECK(types[2] == ScalarType::Unknown);
  CHECK(types.match(2, ScalarType::F64, 1));
  for (std::size_t i = 3; i < ScalarTypes::max_words + 3; ++i) CHECK(types[i] == ScalarType::I16);

  using Large = std::array<std::uint64_t, ScalarTypes::max_words + 1>;
  const ScalarTypes large(ScalarTypes::append<Large>(0), scalar_words<Large>);
  CHECK(large.match(0, ScalarType::Object, scalar_words<Large>));
  CHECK_FALSE(large.match(1, ScalarType::U64, 1));
}
