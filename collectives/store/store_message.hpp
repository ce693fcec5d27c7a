#pragma once

#include <coxswain/collectives/store/store.hpp>
#include <coxswain/collectives/store/world_token.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cox::detail {

/// One message between a process and the store that process 0 serves over TCP. Fields that a kind does not name are
/// empty. A frame is the number of its bytes (32 bits, little endian) and a message.
///
/// Requests: Hello {text: run, process, restart, token}, the first of a connection; Set {key, value}; Get {key};
/// Add {key, amount}; CompareSet {key, expected, value}; Bye. A new request cancels a Get that still waits.
///
/// Replies, with the number of the request: Done (to Hello, Set, Bye); Value {value} (to Get, CompareSet);
/// Number {amount} (to Add); Older {text}: the store belongs to an earlier restart and is about to end; Failed
/// {amount: a StoreError::Kind, text}.
struct StoreMessage {
  enum class Kind : std::uint8_t { Hello = 1, Set, Get, Add, CompareSet, Bye, Done, Value, Number, Older, Failed };

  static constexpr std::uint8_t version = 1;
  static constexpr std::size_t max_text = 1024;   ///< bytes of `key` with its prefix, and of `text`
  static constexpr std::size_t max_hello = 4096;  ///< bytes of a message before the Hello has been accepted
  static constexpr std::size_t max_message = 2 * Store::max_value + max_hello;  ///< bytes

  Kind kind = Kind::Done;
  std::uint32_t number = 0;
  std::uint16_t process = 0;
  std::uint32_t restart = 0;
  std::int64_t amount = 0;
  WorldToken token{};
  std::string key;
  std::string text;
  std::vector<std::byte> value;
  std::vector<std::byte> expected;

  /// The whole frame. Precondition: no field is longer than the limits.
  [[nodiscard]] std::vector<std::byte> frame() const;
  /// std::nullopt if the bytes are not a message of this version.
  [[nodiscard]] static std::optional<StoreMessage> decode(std::span<const std::byte> bytes);

  using Length = std::array<std::byte, 4>;
  /// The bytes of the message that follows.
  [[nodiscard]] static std::size_t length_of(const Length& bytes) noexcept;
};

}  // namespace cox::detail
