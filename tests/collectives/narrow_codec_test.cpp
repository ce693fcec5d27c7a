#include <coxswain/tests/collectives/narrow_float_oracle.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/reduction/narrow_codec.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

using cox::ElementType;
using cox::detail::InstructionSet;
using cox::detail::narrow_codec;
using cox::detail::NarrowCodec;
using cox::test::NarrowFloatOracle;

namespace {

struct NarrowType {
  ElementType type;
  const NarrowFloatOracle& oracle;
};

std::vector<NarrowType> narrow_types() {
  return {{ElementType::F8E4M3, cox::test::f8e4m3_oracle()},
          {ElementType::F8E5M2, cox::test::f8e5m2_oracle()},
          {ElementType::F16, cox::test::f16_oracle()},
          {ElementType::BF16, cox::test::bf16_oracle()}};
}

std::vector<std::byte> encoded(const NarrowCodec& codec, const std::vector<float>& values, std::size_t size) {
  std::vector<std::byte> bytes(values.size() * size);
  codec.encode(values.data(), values.size(), bytes.data());
  return bytes;
}

std::uint32_t narrow_pattern_at(const std::vector<std::byte>& bytes, std::size_t size, std::size_t element) {
  std::uint32_t pattern = 0;
  std::memcpy(&pattern, bytes.data() + element * size, size);  // little-endian
  return pattern;
}

std::vector<std::byte> all_patterns(const NarrowType& narrow) {
  const std::size_t size = cox::element_size(narrow.type);
  std::vector<std::byte> bytes(narrow.oracle.patterns() * size);
  for (std::uint32_t pattern = 0; pattern < narrow.oracle.patterns(); ++pattern)
    std::memcpy(bytes.data() + pattern * size, &pattern, size);
  return bytes;
}

// Around every number and half way between two, of both signs, and floats of every size.
std::vector<float> telling_floats(const NarrowFloatOracle& oracle) {
  std::vector<float> floats;
  const auto& numbers = oracle.numbers();
  for (std::size_t i = 0; i + 1 < numbers.size(); ++i)
    for (const double number : {numbers[i], (numbers[i] + numbers[i + 1]) / 2})
      for (const float target : {-INFINITY, INFINITY}) {
        floats.push_back(static_cast<float>(number));
        floats.push_back(std::nextafter(static_cast<float>(number), target));
      }
  std::mt19937 random(1);
  for (int i = 0; i < 100'000; ++i) floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (const float value : {65519.996F, 65520.0F, 464.5F, 61440.0F, 3e38F, INFINITY, NAN}) floats.push_back(value);
  const std::size_t positive = floats.size();
  for (std::size_t i = 0; i < positive; ++i) floats.push_back(-floats[i]);
  return floats;
}

}  // namespace

TEST_CASE("Narrow floats become floats, whatever the instruction set") {
  for (const InstructionSet set : cox::detail::instruction_sets) {
    if (!cox::detail::can_run(set)) continue;
    for (const NarrowType& narrow : narrow_types()) {
      std::vector<float> floats(narrow.oracle.patterns());
      narrow_codec(set, narrow.type)->decode(all_patterns(narrow).data(), floats.size(), floats.data());
      int wrong = 0;
      for (std::uint32_t pattern = 0; pattern < floats.size(); ++pattern) {
        const double expected = narrow.oracle.decode(pattern);
        const auto decoded = static_cast<double>(floats[pattern]);
        if (std::isnan(expected))
          wrong += std::isnan(decoded) ? 0 : 1;
        else if (decoded != expected || std::signbit(decoded) != std::signbit(expected))
          ++wrong;
      }
      CAPTURE(cox::to_string(narrow.type), static_cast<int>(set));
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("Floats become the nearest narrow ones, whatever the instruction set, and NaNs the one") {
  for (const InstructionSet set : cox::detail::instruction_sets) {
    if (!cox::detail::can_run(set)) continue;
    for (const NarrowType& narrow : narrow_types()) {
      const std::size_t size = cox::element_size(narrow.type);
      const std::vector<float> floats = telling_floats(narrow.oracle);
      const auto bytes = encoded(*narrow_codec(set, narrow.type), floats, size);
      int wrong = 0;
      for (std::size_t i = 0; i < floats.size(); ++i) {
        const std::uint32_t expected =
            std::isnan(floats[i]) ? narrow.oracle.nan() : narrow.oracle.encode(static_cast<double>(floats[i]));
        if (narrow_pattern_at(bytes, size, i) != expected) ++wrong;
      }
      CAPTURE(cox::to_string(narrow.type), static_cast<int>(set));
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("As many elements are written as asked for") {
  for (const InstructionSet set : cox::detail::instruction_sets) {
    if (!cox::detail::can_run(set)) continue;
    for (const NarrowType& narrow : narrow_types())
      for (const std::size_t count : {0U, 1U, 63U, 64U, 65U, 130U}) {
        const std::size_t size = cox::element_size(narrow.type);
        std::vector<std::byte> bytes(200 * size, std::byte{0xa5});
        const std::vector<float> ones(200, 1.0F);
        narrow_codec(set, narrow.type)->encode(ones.data(), count, bytes.data());
        int written = 0;
        for (const std::byte byte : bytes) written += byte == std::byte{0xa5} ? 0 : 1;
        CHECK(static_cast<std::size_t>(written) == count * size);

        std::vector<float> floats((count + 63) / 64 * 64);
        const std::vector<std::byte> given(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count * size));
        narrow_codec(set, narrow.type)->decode(given.data(), count, floats.data());
        CHECK((std::vector(floats.begin(), floats.begin() + static_cast<std::ptrdiff_t>(count)) ==
               std::vector(count, 1.0F)));
      }
  }
}

TEST_CASE("Only floats of 8 and 16 bits have a codec") {
  for (const auto& facts : cox::element_types) {
    const bool narrow = facts.name.find('f') != std::string_view::npos && facts.size < 4;
    CHECK((narrow_codec(InstructionSet::Portable, facts.type) != nullptr) == narrow);
  }
}
