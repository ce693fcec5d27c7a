#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>

namespace cox {

/// The type of a scalar argument, as far as a kernel's access to it is checked. An enum counts as its underlying type;
/// `char`, `long` and the like as the integer of their size and sign.
enum class ScalarType : std::uint8_t {
  Unknown,    ///< not recorded: metadata words (with_info), words before the last ScalarTypes::max_words
  Object,     ///< struct, array, pointer, or a number of another size: the first of its words
  Continued,  ///< a further word of an Object
  Bool,
  I8,
  I16,
  I32,
  I64,
  U8,
  U16,
  U32,
  U64,
  F32,
  F64,
};

[[nodiscard]] constexpr std::string_view to_string(ScalarType type) noexcept {
  constexpr std::string_view names[] = {
      "unknown", "an object", "a part of an object", "bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64",
      "f32",     "f64"};
  static_assert(std::size(names) == static_cast<std::size_t>(ScalarType::F64) + 1);
  return names[static_cast<std::size_t>(type)];
}

namespace detail {

template <class T>
[[nodiscard]] constexpr ScalarType find_scalar_type() noexcept {
  if constexpr (std::is_enum_v<T>) {
    return find_scalar_type<std::underlying_type_t<T>>();
  } else if constexpr (std::is_same_v<T, bool>) {
    return ScalarType::Bool;
  } else if constexpr (std::is_integral_v<T> && sizeof(T) <= sizeof(std::uint64_t)) {
    constexpr ScalarType first = std::is_signed_v<T> ? ScalarType::I8 : ScalarType::U8;
    constexpr unsigned size = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return static_cast<ScalarType>(static_cast<unsigned>(first) + size);
  } else if constexpr (std::is_floating_point_v<T> && sizeof(T) == sizeof(float)) {
    return ScalarType::F32;
  } else if constexpr (std::is_floating_point_v<T> && sizeof(T) == sizeof(double)) {
    return ScalarType::F64;
  } else {
    return ScalarType::Object;
  }
}

}  // namespace detail

template <class T>
inline constexpr ScalarType scalar_type_of = detail::find_scalar_type<std::remove_cv_t<T>>();
/// The words that a scalar takes.
template <class T>
inline constexpr std::size_t scalar_words = (sizeof(T) + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);

/// The types of the static words of a launch. They are recorded in 64 bits, four for each word, the last word in the
/// lowest bits: appending one takes two instructions. So the types of the last `max_words` words are known.
class ScalarTypes {
 public:
  static constexpr std::size_t max_words = 16;
  static constexpr unsigned bits_per_word = 4;

  /// No words.
  constexpr ScalarTypes() noexcept = default;
  constexpr ScalarTypes(std::uint64_t bits, std::size_t words) noexcept : bits_(bits), words_(words) {}
  /// `bits`, with those of a further scalar of type T.
  template <class T>
  [[nodiscard]] static constexpr std::uint64_t append(std::uint64_t bits) noexcept {
    bits = bits << bits_per_word | static_cast<std::uint64_t>(scalar_type_of<T>);
    for (std::size_t i = 1; i < scalar_words<T>; ++i)
      bits = bits << bits_per_word | static_cast<std::uint64_t>(ScalarType::Continued);
    return bits;
  }

  [[nodiscard]] constexpr ScalarType operator[](std::size_t word) const noexcept {
    const std::size_t from_last = words_ - 1 - word;  // wraps if there is no such word
    return from_last < max_words ? static_cast<ScalarType>((bits_ >> (from_last * bits_per_word)) & 15U)
                                 : ScalarType::Unknown;
  }
  /// Whether `words` words from `word` on may be read as one scalar of this type: all were passed as that, or their
  /// types are unknown.
  [[nodiscard]] constexpr bool match(std::size_t word, ScalarType type, std::size_t words) const noexcept {
    const auto is = [this](std::size_t at, ScalarType expected) {
      const ScalarType found = (*this)[at];
      return found == expected || found == ScalarType::Unknown;
    };
    if (!is(word, type)) return false;
    for (std::size_t i = 1; i < words; ++i)
      if (!is(word + i, ScalarType::Continued)) return false;
    return (*this)[word + words] != ScalarType::Continued;
  }

  friend constexpr bool operator==(const ScalarTypes&, const ScalarTypes&) = default;

 private:
  std::uint64_t bits_ = 0;
  std::size_t words_ = 0;
};
static_assert(static_cast<unsigned>(ScalarType::F64) < (1U << ScalarTypes::bits_per_word));

}  // namespace cox
