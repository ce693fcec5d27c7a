#include <coxswain/collectives/reduction/narrow_codec.hpp>

#include <coxswain/collectives/reduction/float_formats.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cox::detail {
namespace {

constexpr std::size_t step = NarrowCodec::step;

// Loops have a constant number of iterations, because compilers vectorise such loops already at -O2.
template <typename Format>
struct Steps {
  static constexpr std::size_t size = sizeof(typename Format::Bits);

  [[gnu::always_inline]] static void decode(const std::byte* __restrict from, float* __restrict to) noexcept {
    for (std::size_t i = 0; i < step; ++i) {
      typename Format::Bits bits;
      std::memcpy(&bits, from + i * size, size);
      to[i] = Format::decode(bits);
    }
  }
  [[gnu::always_inline]] static void encode(const float* __restrict from, std::byte* __restrict to) noexcept {
    for (std::size_t i = 0; i < step; ++i) {
      const auto value = std::bit_cast<std::uint32_t>(from[i]);
      const std::uint32_t is_nan = less(0x7f800000U, value & 0x7fffffffU);
      const auto bits = Format::encode(std::bit_cast<float>(choose(is_nan, 0x7fc00000U, value)));
      std::memcpy(to + i * size, &bits, size);
    }
  }
};

// Reads full steps in place. An incomplete last step is copied and padded with zeros.
template <typename Steps>
[[gnu::always_inline]] inline void decode_steps(const std::byte* from, std::size_t count, float* to) noexcept {
  std::array<std::byte, step * Steps::size> filled;
  for (std::size_t at = 0; at < count; at += step) {
    const std::byte* elements = from + at * Steps::size;
    if (count - at < step) {
      filled = {};
      std::memcpy(filled.data(), elements, (count - at) * Steps::size);
      elements = filled.data();
    }
    Steps::decode(elements, to + at);
  }
}

template <typename Steps>
[[gnu::always_inline]] inline void encode_steps(const float* from, std::size_t count, std::byte* to) noexcept {
  std::size_t at = 0;
  for (; count - at >= step; at += step) Steps::encode(from + at, to + at * Steps::size);
  if (at == count) return;
  std::array<std::byte, step * Steps::size> last;
  Steps::encode(from + at, last.data());
  std::memcpy(to + at * Steps::size, last.data(), (count - at) * Steps::size);
}

template <typename Steps>
struct Portable {
  static void decode(const std::byte* from, std::size_t count, float* to) noexcept {
    decode_steps<Steps>(from, count, to);
  }
  static void encode(const float* from, std::size_t count, std::byte* to) noexcept {
    encode_steps<Steps>(from, count, to);
  }
};

template <typename Steps>
struct Avx2 {
  COX_TARGET_AVX2 static void decode(const std::byte* from, std::size_t count, float* to) noexcept {
    decode_steps<Steps>(from, count, to);
  }
  COX_TARGET_AVX2 static void encode(const float* from, std::size_t count, std::byte* to) noexcept {
    encode_steps<Steps>(from, count, to);
  }
};

#if defined(__x86_64__)
COX_TARGET_AVX2 inline __m256i sixteen_bytes_widened(const std::byte* from) noexcept {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
COX_TARGET_AVX2 inline __m256 lower_halves(__m256i halves) noexcept {
  return _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
}
COX_TARGET_AVX2 inline __m256 upper_halves(__m256i halves) noexcept {
  return _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
}

COX_TARGET_AVX2 inline __m256i all(std::uint32_t bits) noexcept { return _mm256_set1_epi32(static_cast<int>(bits)); }

// Encodes 8 floats, each into 32 bits. Same algorithm as Format::encode.
template <typename Format>
COX_TARGET_AVX2 inline __m256i encoded(const float* from) noexcept {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i magnitude = _mm256_and_si256(bits, all(0x7fffffffU));
  const __m256i last_bit = _mm256_and_si256(_mm256_srli_epi32(magnitude, Format::shift), all(1));
  constexpr std::uint32_t almost_half = (1U << (Format::shift - 1)) - 1;
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(_mm256_add_epi32(magnitude, all(almost_half - (Format::rebias << 23))), last_bit),
      Format::shift);
  __m256i number = _mm256_min_epi32(rounded, all(Format::limit));
  if constexpr (Format::rebias != 0) {
    const __m256 ruled = _mm256_add_ps(_mm256_castsi256_ps(magnitude), _mm256_castsi256_ps(all(Format::ruler)));
    const __m256i subnormal = _mm256_sub_epi32(_mm256_castps_si256(ruled), all(Format::ruler));
    number = _mm256_blendv_epi8(number, subnormal, _mm256_cmpgt_epi32(all(Format::smallest_normal), magnitude));
  }
  const __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(bits, 31), Format::width - 1);
  return _mm256_blendv_epi8(_mm256_or_si256(number, sign), all(Format::quiet_nan),
                            _mm256_cmpgt_epi32(magnitude, all(Format::float_infinity)));
}

// The pack instructions work on each 128-bit lane separately, so the order is corrected afterwards.
template <typename Format>
COX_TARGET_AVX2 inline void encode_bytes(const float* from, std::byte* to) noexcept {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (std::size_t i = 0; i < step; i += 32) {
    const __m256i first = _mm256_packus_epi32(encoded<Format>(from + i), encoded<Format>(from + i + 8));
    const __m256i second = _mm256_packus_epi32(encoded<Format>(from + i + 16), encoded<Format>(from + i + 24));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_permutevar8x32_epi32(_mm256_packus_epi16(first, second), order));
  }
}

// F16C has instructions for this conversion.
struct F16Steps {
  static constexpr std::size_t size = 2;

  COX_TARGET_AVX2 static void decode(const std::byte* from, float* to) noexcept {
    for (std::size_t i = 0; i < step; i += 8)
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * size))));
  }
  COX_TARGET_AVX2 static void encode(const float* from, std::byte* to) noexcept {
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    for (std::size_t i = 0; i < step; i += 8) {
      const __m256 values = _mm256_loadu_ps(from + i);
      const __m256 numbers = _mm256_blendv_ps(values, nan, _mm256_cmp_ps(values, values, _CMP_UNORD_Q));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * size),
                       _mm256_cvtps_ph(numbers, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
  }
};

// A BF16 is the upper half of a float.
struct BF16Steps {
  static constexpr std::size_t size = 2;

  COX_TARGET_AVX2 static void decode(const std::byte* from, float* to) noexcept {
    for (std::size_t i = 0; i < step; i += 8) {
      const __m128i elements = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * size));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_slli_epi32(_mm256_cvtepu16_epi32(elements), 16));
    }
  }
  COX_TARGET_AVX2 static void encode(const float* from, std::byte* to) noexcept {
    for (std::size_t i = 0; i < step; i += 16) {
      const __m256i packed = _mm256_packus_epi32(encoded<BF16>(from + i), encoded<BF16>(from + i + 8));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * size), _mm256_permute4x64_epi64(packed, 0b11011000));
    }
  }
};

// An F8E5M2 is the upper half of an F16.
struct F8E5M2Steps {
  static constexpr std::size_t size = 1;

  COX_TARGET_AVX2 static void encode(const float* from, std::byte* to) noexcept { encode_bytes<F8E5M2>(from, to); }
  COX_TARGET_AVX2 static void decode(const std::byte* from, float* to) noexcept {
    for (std::size_t i = 0; i < step; i += 16) {
      const __m256i halves = _mm256_slli_epi16(sixteen_bytes_widened(from + i), 8);
      _mm256_storeu_ps(to + i, lower_halves(halves));
      _mm256_storeu_ps(to + i + 8, upper_halves(halves));
    }
  }
};

// Shifted into an F16, the value is 256 times too small, because the exponent biases differ by 8. The bits of its NaN
// would be the number 480.
struct F8E4M3Steps {
  static constexpr std::size_t size = 1;

  COX_TARGET_AVX2 static void encode(const float* from, std::byte* to) noexcept { encode_bytes<F8E4M3>(from, to); }
  COX_TARGET_AVX2 static void decode(const std::byte* from, float* to) noexcept {
    for (std::size_t i = 0; i < step; i += 16) {
      const __m256i bytes = sixteen_bytes_widened(from + i);
      const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(bytes, _mm256_set1_epi16(0x80)), 8);
      const __m256i magnitude = _mm256_slli_epi16(_mm256_and_si256(bytes, _mm256_set1_epi16(0x7f)), 7);
      const __m256i halves = _mm256_or_si256(sign, magnitude);
      _mm256_storeu_ps(to + i, number(lower_halves(halves)));
      _mm256_storeu_ps(to + i + 8, number(upper_halves(halves)));
    }
  }

 private:
  COX_TARGET_AVX2 static __m256 number(__m256 scaled) noexcept {
    const __m256 value = _mm256_mul_ps(scaled, _mm256_set1_ps(256.0F));
    const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), value);
    return _mm256_or_ps(value, _mm256_cmp_ps(magnitude, _mm256_set1_ps(480.0F), _CMP_EQ_OQ));
  }
};
#else
using F16Steps = Steps<F16>;
using BF16Steps = Steps<BF16>;
using F8E5M2Steps = Steps<F8E5M2>;
using F8E4M3Steps = Steps<F8E4M3>;
#endif

struct Entry {
  ElementType type;
  std::array<NarrowCodec, instruction_sets.size()> codecs;  // by instruction set
};

template <typename PortableSteps, typename Avx2Steps>
constexpr Entry entry(ElementType type) {
  return {type,
          {NarrowCodec{Portable<PortableSteps>::decode, Portable<PortableSteps>::encode},
           NarrowCodec{Avx2<Avx2Steps>::decode, Avx2<Avx2Steps>::encode}}};
}

constexpr std::array entries{
    entry<Steps<F8E4M3>, F8E4M3Steps>(ElementType::F8E4M3), entry<Steps<F8E5M2>, F8E5M2Steps>(ElementType::F8E5M2),
    entry<Steps<F16>, F16Steps>(ElementType::F16), entry<Steps<BF16>, BF16Steps>(ElementType::BF16)};

}  // namespace

const NarrowCodec* narrow_codec(InstructionSet set, ElementType type) noexcept {
  const auto* const found = std::ranges::find(entries, type, &Entry::type);
  return found == entries.end() ? nullptr : &found->codecs[static_cast<std::size_t>(set)];
}

}  // namespace cox::detail
