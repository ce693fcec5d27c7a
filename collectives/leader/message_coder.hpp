#pragma once

#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

/// How messages are turned into bytes and back: numbers are little endian, without padding; texts and lists begin with
/// their length. MessageWriter and MessageReader have the same functions, so that the members of each message can be
/// listed once, in a template for both.
namespace cox::detail::world {

/// Bytes that are not a message, or a message that is larger than its limits.
class MalformedMessage : public Error {
 public:
  using Error::Error;
};

inline constexpr std::size_t max_frame = std::size_t{1024} * 1024;          ///< bytes of an encoded message
inline constexpr std::chrono::milliseconds max_timeout{1'000'000'000'000};  ///< the writer shortens longer ones

[[noreturn]] inline void malformed(const char* what) {
  throw MalformedMessage(std::string("not a message of a world: ") + what, std::source_location());
}

/// The length of the text if it is cut to at most so many bytes, at the beginning of a UTF-8 character.
[[nodiscard]] inline std::size_t length_up_to(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text.size();
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0U) == 0x80U) --most;
  return most;
}

class MessageWriter {
 public:
  template <std::unsigned_integral T>
  void number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      frame_.push_back(static_cast<std::byte>(std::uint64_t{value} >> (8 * i)));
  }
  void kind(CollectiveError::Kind value) { number(static_cast<std::uint8_t>(value)); }
  void timeout(std::chrono::milliseconds value) {
    number(static_cast<std::uint64_t>(std::clamp(value, std::chrono::milliseconds(0), max_timeout).count()));
  }
  template <std::size_t size>
  void fixed(const std::array<std::byte, size>& value) {
    frame_.insert(frame_.end(), value.begin(), value.end());
  }
  void text(std::string_view value, std::size_t most) {
    value = value.substr(0, length_up_to(value, most));
    bytes(std::as_bytes(std::span(value)));
  }
  void bytes(std::span<const std::byte> value, std::size_t most = max_frame) {
    if (value.size() > most) malformed("a list of bytes is too long");
    number(static_cast<std::uint32_t>(value.size()));
    frame_.insert(frame_.end(), value.begin(), value.end());
  }
  template <class T, class CodeElement>
  void list(const std::vector<T>& values, std::size_t most, std::size_t /*least_bytes*/, const CodeElement& element) {
    if (values.size() > most) malformed("a list is too long");
    number(static_cast<std::uint32_t>(values.size()));
    for (const T& value : values) element(*this, value);
  }
  /// Throws MalformedMessage.
  [[nodiscard]] std::vector<std::byte> take() {
    if (frame_.size() > max_frame) malformed("it has more than 1 MiB");
    return std::move(frame_);
  }

 private:
  std::vector<std::byte> frame_;
};

/// Its functions throw MalformedMessage.
class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> frame) : rest_(frame) {}

  template <std::unsigned_integral T>
  void number(T& value) {
    value = 0;
    const auto part = next(sizeof(T));
    for (std::size_t i = 0; i < sizeof(T); ++i)
      value = static_cast<T>(value | static_cast<T>(std::to_integer<T>(part[i]) << (8 * i)));
  }
  void kind(CollectiveError::Kind& value) {
    std::uint8_t coded = 0;
    number(coded);
    if (coded > static_cast<std::uint8_t>(CollectiveError::Kind::WorldGone)) malformed("an unknown kind of error");
    value = static_cast<CollectiveError::Kind>(coded);
  }
  void timeout(std::chrono::milliseconds& value) {
    std::uint64_t count = 0;
    number(count);
    if (count > static_cast<std::uint64_t>(max_timeout.count())) malformed("a timeout is too long");
    value = std::chrono::milliseconds(count);
  }
  template <std::size_t size>
  void fixed(std::array<std::byte, size>& value) {
    std::ranges::copy(next(size), value.begin());
  }
  void text(std::string& value, std::size_t most) {
    const auto part = next(length(most, 1));
    value.resize(part.size());
    std::ranges::transform(part, value.begin(), [](std::byte byte) { return static_cast<char>(byte); });
  }
  void bytes(std::vector<std::byte>& value, std::size_t most) {
    const auto part = next(length(most, 1));
    value.assign(part.begin(), part.end());
  }
  template <class T, class CodeElement>
  void list(std::vector<T>& values, std::size_t most, std::size_t least_bytes, const CodeElement& element) {
    values.resize(length(most, least_bytes));
    for (T& value : values) element(*this, value);
  }
  /// Skips the rest of the frame.
  void skip() noexcept { rest_ = {}; }
  void require_end() const {
    if (!rest_.empty()) malformed("it is longer than its members");
  }

 private:
  std::span<const std::byte> next(std::size_t count) {
    if (count > rest_.size()) malformed("it ends within a member");
    const auto part = rest_.first(count);
    rest_ = rest_.subspan(count);
    return part;
  }
  // Number of elements of what follows, each of which takes at least so many bytes.
  std::size_t length(std::size_t most, std::size_t least_bytes) {
    std::uint32_t count = 0;
    number(count);
    if (count > most || count > rest_.size() / least_bytes) malformed("a length is too large");
    return count;
  }

  std::span<const std::byte> rest_;
};

/// The number of the alternative, from 1, then its members, which `members(writer, alternative)` writes. Throws
/// MalformedMessage, std::bad_alloc.
template <class Variant, class Members>
[[nodiscard]] std::vector<std::byte> encode_variant(const Variant& message, const Members& members) {
  MessageWriter writer;
  writer.number(static_cast<std::uint8_t>(message.index() + 1));
  std::visit([&](const auto& alternative) { members(writer, alternative); }, message);
  return writer.take();
}

template <class Variant, class Alternative, class Members>
[[nodiscard]] Variant decode_alternative(MessageReader& reader, const Members& members) {
  Alternative alternative;
  members(reader, alternative);
  reader.require_end();
  return alternative;
}

/// The message that encode_variant() has encoded; `members(reader, alternative)` reads its members. Throws
/// MalformedMessage, std::bad_alloc.
template <class Variant, class Members>
[[nodiscard]] Variant decode_variant(std::span<const std::byte> encoded, const Members& members) {
  constexpr auto decoders = []<std::size_t... numbers>(std::index_sequence<numbers...>) {
    return std::array{&decode_alternative<Variant, std::variant_alternative_t<numbers, Variant>, Members>...};
  }(std::make_index_sequence<std::variant_size_v<Variant>>());
  if (encoded.size() > max_frame) malformed("it has more than 1 MiB");
  MessageReader reader(encoded);
  std::uint8_t number = 0;
  reader.number(number);
  if (number == 0 || number > decoders.size()) malformed("an unknown type");
  return decoders[number - 1U](reader, members);
}

}  // namespace cox::detail::world
