#include <coxswain/collectives/detail/narrow_codec.hpp>

#include <coxswain/collectives/detail/float_formats.hpp>

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

// Loops over a constant number of elements: compilers vectorise those without asking for more than -O2.
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

// The last step is filled up with zeros if need be: a full one is taken as it lies.
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
  alignas(64) std::array<std::byte, step * Steps::size> elements;
  for (std::size_t at = 0; at < count; at += step) {
    Steps::encode(from + at, elements.data());
    std::memcpy(to + at * Steps::size, elements.data(), std::min(step, count - at) * Steps::size);
  }
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

// The processor converts this one.
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

// The upper half of an F16.
struct F8E5M2Steps : Steps<F8E5M2> {
  COX_TARGET_AVX2 static void decode(const std::byte* from, float* to) noexcept {
    for (std::size_t i = 0; i < step; i += 16) {
      const __m256i halves = _mm256_slli_epi16(sixteen_bytes_widened(from + i), 8);
      _mm256_storeu_ps(to + i, lower_halves(halves));
      _mm256_storeu_ps(to + i + 8, upper_halves(halves));
    }
  }
};

// Shifted into an F16, it is 256 times too small: their exponents count from places that far apart. Its NaN is what
// would be the number 480.
struct F8E4M3Steps : Steps<F8E4M3> {
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
    entry<Steps<F16>, F16Steps>(ElementType::F16), entry<Steps<BF16>, Steps<BF16>>(ElementType::BF16)};

}  // namespace

const NarrowCodec* narrow_codec(InstructionSet set, ElementType type) noexcept {
  const auto* const found = std::ranges::find(entries, type, &Entry::type);
  return found == entries.end() ? nullptr : &found->codecs[static_cast<std::size_t>(set)];
}

}  // namespace cox::detail
