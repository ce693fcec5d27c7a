#include <coxswain/runtime/kept/keeper_message.hpp>

#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/runtime/socket/descriptor_packet.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <type_traits>
#include <utility>

namespace cox {
namespace {

// "COXK", then the version: no other program's packet is taken for one.
constexpr std::array<std::byte, 4> magic{std::byte{'C'}, std::byte{'O'}, std::byte{'X'}, std::byte{'K'}};
constexpr std::size_t max_packet = 128 * 1024;

class Writer {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  void number(T value) {
    const auto* const data = reinterpret_cast<const std::byte*>(&value);
    packet_.insert(packet_.end(), data, data + sizeof(value));
  }
  void bytes(std::span<const std::byte> bytes) {
    number(static_cast<std::uint32_t>(bytes.size()));
    packet_.insert(packet_.end(), bytes.begin(), bytes.end());
  }
  void text(const std::string& text) { bytes(std::as_bytes(std::span(text))); }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(packet_); }

 private:
  std::vector<std::byte> packet_{magic.begin(), magic.end()};
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> packet) : rest_(packet) {}

  [[nodiscard]] bool magic_is_right() {
    if (rest_.size() < magic.size() || !std::equal(magic.begin(), magic.end(), rest_.begin())) return false;
    rest_ = rest_.subspan(magic.size());
    return true;
  }
  template <class T>
  [[nodiscard]] bool number(T& value) {
    if (rest_.size() < sizeof(value)) return false;
    std::memcpy(&value, rest_.data(), sizeof(value));
    rest_ = rest_.subspan(sizeof(value));
    return true;
  }
  template <class Container>
  [[nodiscard]] bool bytes(Container& out, std::size_t most) {
    std::uint32_t count = 0;
    if (!number(count) || count > most || count > rest_.size()) return false;
    out.resize(count);
    if (count != 0) std::memcpy(out.data(), rest_.data(), count);
    rest_ = rest_.subspan(count);
    return true;
  }
  [[nodiscard]] bool at_end() const noexcept { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

bool is_within_limits(const KeeperMessage& message) {
  return std::ranges::all_of(std::array{&message.set, &message.device, &message.name},
                             [](const std::string* name) { return name->size() <= KeeperMessage::max_name; }) &&
         message.text.size() <= KeeperMessage::max_text && message.payload.size() <= KeeperMessage::max_payload &&
         message.sizes.size() <= KeeperMessage::max_pieces;
}

std::string error_text(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail_sending(int error, std::source_location site) {
  using Kind = KeptError::Kind;
  if (error == ETOOMANYREFS || error == EMFILE || error == ENFILE)
    throw KeptError(Kind::Descriptors, "file descriptors cannot be passed: " + error_text(error), site);
  if (error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS)
    throw KeptError(Kind::Supervisor, "the supervisor takes no more messages: it does not run", site);
  throw KeptError(Kind::Supervisor, "the connection to the supervisor is lost: " + error_text(error), site);
}

void require_version(std::span<const std::byte> packet, std::source_location site) {
  Reader reader(packet);
  std::uint8_t version = 0;
  if (!reader.magic_is_right() || !reader.number(version) || version == KeeperMessage::version) return;
  throw KeptError(KeptError::Kind::Supervisor,
                  "the supervisor and the program do not belong together: a message about kept memory has version " +
                      std::to_string(version) + " instead of version " + std::to_string(KeeperMessage::version),
                  site);
}

}  // namespace

std::vector<std::byte> KeeperMessage::encode() const {
  Writer writer;
  writer.number(version);
  writer.number(static_cast<std::uint8_t>(kind));
  for (const std::string* part : {&set, &device, &name, &text}) writer.text(*part);
  writer.number(number);
  writer.number(bytes);
  writer.number(static_cast<std::uint32_t>(sizes.size()));
  for (const std::uint64_t size : sizes) writer.number(size);
  writer.bytes(payload);
  return writer.take();
}

std::optional<KeeperMessage> KeeperMessage::decode(std::span<const std::byte> packet) {
  Reader reader(packet);
  KeeperMessage message;
  std::uint8_t its_version = 0;
  std::uint8_t kind = 0;
  if (!reader.magic_is_right() || !reader.number(its_version) || its_version != version || !reader.number(kind) ||
      kind < static_cast<std::uint8_t>(Kind::Open) || kind > static_cast<std::uint8_t>(Kind::Lost))
    return std::nullopt;
  message.kind = static_cast<Kind>(kind);
  std::uint32_t count = 0;
  if (!reader.bytes(message.set, max_name) || !reader.bytes(message.device, max_name) ||
      !reader.bytes(message.name, max_name) || !reader.bytes(message.text, max_text) ||
      !reader.number(message.number) || !reader.number(message.bytes) || !reader.number(count) || count > max_pieces)
    return std::nullopt;
  message.sizes.resize(count);
  for (std::uint64_t& size : message.sizes)
    if (!reader.number(size)) return std::nullopt;
  if (!reader.bytes(message.payload, max_payload) || !reader.at_end()) return std::nullopt;
  return message;
}

void send_message(int socket, const KeeperMessage& message, KeeperWait wait, std::source_location site) {
  if (!is_within_limits(message) || message.descriptors.size() > KeeperMessage::max_pieces)
    throw KeptError(KeptError::Kind::Limit,
                    "a name has more than 255 bytes, a schema more than 4096, values more than 65536, or a packet more "
                    "than 253 descriptors",
                    site);
  const std::vector<std::byte> packet = message.encode();
  const int flags = wait == KeeperWait::Shortly ? MSG_DONTWAIT : 0;
  bool has_waited = false;
  while (const int error = send_packet(socket, packet, message.descriptors, flags)) {
    if (error != EAGAIN || wait == KeeperWait::Yes || std::exchange(has_waited, true)) fail_sending(error, site);
    pollfd writable{.fd = socket, .events = POLLOUT, .revents = 0};
    static_cast<void>(poll(&writable, 1, static_cast<int>(keeper_shortly.count())));
  }
}

std::optional<KeeperMessage> receive_message(int socket, std::source_location site) {
  DescriptorPacket packet;
  const int error = receive_packet(socket, max_packet, packet, 0);
  if (error == ECONNRESET) return std::nullopt;
  if (error != 0)
    throw KeptError(KeptError::Kind::Supervisor, "the connection to the supervisor is lost: " + error_text(error),
                    site);
  if (packet.data.empty()) return std::nullopt;
  if (packet.lacks_descriptors)
    throw KeptError(KeptError::Kind::Descriptors, "no file descriptors are left to receive those of kept memory", site);
  auto message = KeeperMessage::decode(packet.data);
  require_version(packet.data, site);
  if (!message || packet.is_cut || message->sizes.size() != packet.descriptors.size())
    throw KeptError(KeptError::Kind::Supervisor, "a message about kept memory is damaged", site);
  message->descriptors = std::move(packet.descriptors);
  return message;
}

}  // namespace cox
