#include <coxswain/collectives/store/store_message.hpp>

#include <algorithm>
#include <concepts>
#include <type_traits>
#include <utility>

namespace cox::detail {
namespace {

class MessageWriter {
 public:
  template <std::integral T>
  void number(T value) {
    auto rest = static_cast<std::uint64_t>(static_cast<std::make_unsigned_t<T>>(value));
    for (std::size_t i = 0; i < sizeof(T); ++i, rest >>= 8U) bytes_.push_back(static_cast<std::byte>(rest & 0xFFU));
  }
  void bytes(std::span<const std::byte> content) { bytes_.insert(bytes_.end(), content.begin(), content.end()); }
  void counted(std::span<const std::byte> content) {
    number(static_cast<std::uint32_t>(content.size()));
    bytes(content);
  }
  /// The bytes, after the number of bytes that follow it was put into the first four.
  std::vector<std::byte> take_frame() {
    std::size_t rest = bytes_.size() - sizeof(std::uint32_t);
    for (std::size_t i = 0; i < sizeof(std::uint32_t); ++i, rest >>= 8U)
      bytes_[i] = static_cast<std::byte>(rest & 0xFFU);
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
};

class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <std::integral T>
  bool number(T& value) {
    if (rest_.size() < sizeof(T)) return false;
    std::uint64_t whole = 0;
    for (std::size_t i = sizeof(T); i-- > 0;) whole = (whole << 8U) | std::to_integer<std::uint64_t>(rest_[i]);
    value = static_cast<T>(whole);
    rest_ = rest_.subspan(sizeof(T));
    return true;
  }
  bool exactly(std::span<std::byte> target) {
    if (rest_.size() < target.size()) return false;
    std::copy_n(rest_.begin(), target.size(), target.begin());
    rest_ = rest_.subspan(target.size());
    return true;
  }
  template <class Container>
  bool counted(Container& content, std::size_t longest) {
    std::uint32_t size = 0;
    if (!number(size) || size > longest || size > rest_.size()) return false;
    content.resize(size);
    return exactly(std::as_writable_bytes(std::span(content)));
  }
  [[nodiscard]] bool at_end() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace

std::vector<std::byte> StoreMessage::frame() const {
  MessageWriter writer;
  writer.number(std::uint32_t{0});  // the length
  writer.number(version);
  writer.number(static_cast<std::uint8_t>(kind));
  writer.number(number);
  writer.number(process);
  writer.number(restart);
  writer.number(amount);
  writer.bytes(token);
  writer.counted(std::as_bytes(std::span(key)));
  writer.counted(std::as_bytes(std::span(text)));
  writer.counted(value);
  writer.counted(expected);
  return writer.take_frame();
}

std::optional<StoreMessage> StoreMessage::decode(std::span<const std::byte> bytes) {
  MessageReader reader(bytes);
  StoreMessage message;
  std::uint8_t its_version = 0;
  std::uint8_t its_kind = 0;
  if (!reader.number(its_version) || its_version != version || !reader.number(its_kind) ||
      its_kind < static_cast<std::uint8_t>(Kind::Hello) || its_kind > static_cast<std::uint8_t>(Kind::Failed))
    return std::nullopt;
  message.kind = static_cast<Kind>(its_kind);
  if (!reader.number(message.number) || !reader.number(message.process) || !reader.number(message.restart) ||
      !reader.number(message.amount) || !reader.exactly(message.token) || !reader.counted(message.key, max_text) ||
      !reader.counted(message.text, max_text) || !reader.counted(message.value, Store::max_value) ||
      !reader.counted(message.expected, Store::max_value) || !reader.at_end())
    return std::nullopt;
  return message;
}

std::size_t StoreMessage::length_of(const Length& bytes) noexcept {
  std::size_t length = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) length = (length << 8U) | std::to_integer<std::size_t>(bytes[i]);
  return length;
}

}  // namespace cox::detail
