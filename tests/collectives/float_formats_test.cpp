#include <coxswain/tests/collectives/narrow_float_oracle.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/reduction/float_formats.hpp>

#include <bit>
#include <cmath>
#include <concepts>
#include <limits>

using cox::detail::BF16;
using cox::detail::F16;
using cox::detail::F8E4M3;
using cox::detail::F8E5M2;
using cox::test::NarrowFloatOracle;

namespace {

template <typename T>
const NarrowFloatOracle& oracle_of() {
  if constexpr (std::same_as<T, F16>) return cox::test::f16_oracle();
  if constexpr (std::same_as<T, BF16>) return cox::test::bf16_oracle();
  if constexpr (std::same_as<T, F8E5M2>) return cox::test::f8e5m2_oracle();
  if constexpr (std::same_as<T, F8E4M3>) return cox::test::f8e4m3_oracle();
}

template <typename Format>
typename Format::Bits pattern_of(std::uint32_t pattern) {
  return static_cast<typename Format::Bits>(pattern);
}

constexpr float infinity = std::numeric_limits<float>::infinity();

// Counted instead of asserted one by one: there are hundreds of thousands.
template <typename Format>
int wrongly_encoded(float value) {
  int wrong = 0;
  for (const float signed_value : {value, -value})
    if (Format::encode(signed_value) != oracle_of<Format>().encode(static_cast<double>(signed_value))) ++wrong;
  return wrong;
}

static_assert(F16::decode(0x3c00) == 1.0F && F16::encode(65504.0F) == 0x7bff);
static_assert(BF16::encode(1.0F) == 0x3f80 && F8E4M3::encode(448.0F) == 0x7e && F8E5M2::decode(0x7b) == 57344.0F);

}  // namespace

TEMPLATE_TEST_CASE("Every pattern decodes to its number, and rising patterns to rising numbers", "", F16, BF16, F8E4M3,
                   F8E5M2) {
  const auto& oracle = oracle_of<TestType>();
  int wrong = 0;
  for (std::uint32_t pattern = 0; pattern < oracle.patterns(); ++pattern) {
    const double expected = oracle.decode(pattern);
    const auto decoded = static_cast<double>(TestType::decode(pattern_of<TestType>(pattern)));
    const bool same = std::isnan(expected) ? std::isnan(decoded) : decoded == expected;
    if (!same || std::signbit(decoded) != ((pattern & oracle.sign_bit()) != 0)) ++wrong;
  }
  CHECK(wrong == 0);
  for (std::uint32_t pattern = 1; pattern < oracle.numbers().size(); ++pattern)
    if (!(TestType::decode(pattern_of<TestType>(pattern - 1)) < TestType::decode(pattern_of<TestType>(pattern))))
      ++wrong;
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("Every number comes back from float as it was, and every NaN as a quiet one", "", F16, BF16, F8E4M3,
                   F8E5M2) {
  const auto& oracle = oracle_of<TestType>();
  int wrong = 0;
  for (std::uint32_t pattern = 0; pattern < oracle.patterns(); ++pattern) {
    const float decoded = TestType::decode(pattern_of<TestType>(pattern));
    if (std::isinf(decoded) && TestType::width == 8) continue;  // saturates: below
    const std::uint32_t expected = std::isnan(decoded) ? pattern | oracle.nan() : pattern;
    if (TestType::encode(decoded) != expected) ++wrong;
  }
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("Between two numbers the nearer is taken, and half way the even one", "", F16, BF16, F8E4M3,
                   F8E5M2) {
  const auto& numbers = oracle_of<TestType>().numbers();
  int wrong = 0;
  for (std::size_t i = 0; i + 1 < numbers.size(); ++i) {
    const double step = numbers[i + 1] - numbers[i];
    const auto half_way = static_cast<float>(numbers[i] + step / 2);
    REQUIRE(static_cast<double>(half_way) == numbers[i] + step / 2);
    if (TestType::encode(half_way) != i + i % 2) ++wrong;
    wrong += wrongly_encoded<TestType>(half_way);
    wrong += wrongly_encoded<TestType>(std::nextafter(half_way, 0.0F));
    wrong += wrongly_encoded<TestType>(std::nextafter(half_way, infinity));
    wrong += wrongly_encoded<TestType>(static_cast<float>(numbers[i] + step / 4));
    wrong += wrongly_encoded<TestType>(std::nextafter(static_cast<float>(numbers[i]), 0.0F));
  }
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("Floats of every size are rounded to the nearest", "", F16, BF16, F8E4M3, F8E5M2) {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits <= std::bit_cast<std::uint32_t>(infinity); bits += 9973)
    wrong += wrongly_encoded<TestType>(std::bit_cast<float>(bits));
  CHECK(wrong == 0);
}

TEST_CASE("What is too large becomes infinity in 16 bits, and the largest number in 8") {
  CHECK(F16::encode(65519.996F) == 0x7bff);
  CHECK(F16::encode(65520.0F) == 0x7c00);
  CHECK(F16::encode(-infinity) == 0xfc00);
  CHECK(BF16::encode(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(BF16::encode(-infinity) == 0xff80);
  for (const float large : {464.5F, 1e30F, infinity}) {
    CHECK(F8E4M3::encode(large) == 0x7e);
    CHECK(F8E4M3::encode(-large) == 0xfe);
  }
  for (const float large : {61440.0F, 1e30F, infinity}) {
    CHECK(F8E5M2::encode(large) == 0x7b);
    CHECK(F8E5M2::encode(-large) == 0xfb);
  }
  CHECK(F8E5M2::decode(0x7c) == infinity);
}

TEST_CASE("A NaN keeps its sign and the upper bits of its payload") {
  CHECK(F16::encode(std::bit_cast<float>(0xffc02000U)) == 0xfe01);
  CHECK(BF16::encode(std::bit_cast<float>(0x7f800001U)) == 0x7fc0);
  CHECK(F8E5M2::encode(std::bit_cast<float>(0x7fe00000U)) == 0x7f);
  CHECK(F8E4M3::encode(std::bit_cast<float>(0xff800001U)) == 0xff);
}
