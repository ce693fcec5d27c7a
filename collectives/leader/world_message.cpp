#include <coxswain/collectives/leader/world_message.hpp>

#include <algorithm>
#include <concepts>
#include <string_view>
#include <type_traits>
#include <utility>

namespace cox::detail::world {
namespace {

constexpr std::array<std::byte, 4> magic{std::byte{'C'}, std::byte{'O'}, std::byte{'X'}, std::byte{'W'}};

template <class T, class Message>
concept Is = std::same_as<std::remove_const_t<T>, Message>;

constexpr auto code_device = [](auto& coder, auto& device) {
  coder.number(device.type);
  coder.number(device.index);
  coder.number(device.process);
};
constexpr std::size_t device_bytes = 6;

template <class Coder>
void code_devices(Coder& coder, auto& devices) {
  coder.list(devices, max_devices, device_bytes, code_device);
}

template <class Coder, Is<Direction> M>
void code(Coder& coder, M& direction) {
  coder.number(direction.from);
  coder.number(direction.to);
  if ((direction.from == all_ranks) != (direction.to == all_ranks)) malformed("a direction has one rank");
  if ((direction.from == creation_rank) != (direction.to == creation_rank)) malformed("a creation has one rank");
}
template <class Coder, Is<OperationName> M>
void code(Coder& coder, M& name) {
  coder.number(name.number);
  coder.number(name.operation);
}
template <class Coder, Is<SequenceEnd> M>
void code(Coder& coder, M& end) {
  code(coder, end.direction);
  coder.number(end.from);
}
template <class Coder, Is<ProcessFacts> M>
void code(Coder& coder, M& facts) {
  coder.text(facts.host, max_name);
  coder.number(facts.pid);
  coder.number(facts.restart);
  coder.text(facts.versions, max_name);
  coder.text(facts.data_address, max_name);
  coder.number(facts.data_port);
  code_devices(coder, facts.devices);
}
constexpr std::size_t facts_bytes = 30;  // with empty texts and no devices

template <class Coder, Is<Hello> M>
void code(Coder& coder, M& message) {
  std::array<std::byte, 4> begin = magic;
  coder.fixed(begin);
  if (begin != magic) malformed("another program's");
  coder.number(message.protocol);
  if constexpr (std::same_as<Coder, MessageReader>)
    if (message.protocol != protocol_version) return coder.skip();
  coder.fixed(message.token);
  coder.text(message.library, max_name);
  coder.text(message.run, max_name);
  coder.number(message.process);
  coder.number(message.processes);
  code(coder, message.facts);
}
template <class Coder, class M>
  requires Is<M, Rejected> || Is<M, Awaited>
void code(Coder& coder, M& message) {
  coder.text(message.text, max_text);
}
template <class Coder, Is<Welcome> M>
void code(Coder& coder, M& message) {
  coder.list(message.processes, max_processes, facts_bytes, [](auto& c, auto& facts) { code(c, facts); });
  coder.number(message.max_ahead);
}
template <class Coder, Is<Heartbeat> M>
void code(Coder& coder, M& message) {
  coder.number(message.sent);
  coder.number(message.heard);
  coder.number(message.held);
}
template <class Coder, Is<Connected> M>
void code(Coder&, M&) {}
template <class Coder, Is<Bye> M>
void code(Coder& coder, M& message) {
  coder.text(message.text, max_text);
}
template <class Coder, Is<Open> M>
void code(Coder& coder, M& message) {
  coder.number(message.number);
  code_devices(coder, message.devices);
  coder.number(message.epoch);
  code(coder, message.direction);
  coder.timeout(message.timeout);
}
template <class Coder, Is<Ask> M>
void code(Coder& coder, M& message) {
  coder.number(message.number);
  coder.number(message.operation);
  coder.bytes(message.fingerprint, max_fingerprint);
  coder.text(message.description, max_description);
  coder.list(message.awaited, max_awaited, 16, [](auto& c, auto& name) { code(c, name); });
}
template <class Coder, class M>
  requires Is<M, Refuse> || Is<M, Refused>
void code(Coder& coder, M& message) {
  coder.number(message.number);
  coder.number(message.operation);
  coder.kind(message.kind);
  coder.text(message.text, max_text);
}
template <class Coder, Is<Break> M>
void code(Coder& coder, M& message) {
  coder.number(message.number);
  coder.number(message.from);
  coder.kind(message.kind);
  coder.text(message.text, max_text);
}
template <class Coder, Is<Progress> M>
void code(Coder& coder, M& message) {
  coder.number(message.number);
  coder.number(message.completed);
}
template <class Coder, Is<Close> M>
void code(Coder& coder, M& message) {
  coder.number(message.number);
}
template <class Coder, Is<Answer> M>
void code(Coder& coder, M& message) {
  coder.number(message.question);
  coder.text(message.text, max_text);
}
template <class Coder, Is<Release> M>
void code(Coder& coder, M& message) {
  coder.number(message.number);
  coder.number(message.operation);
  coder.number(message.turn);
}
template <class Coder, Is<Broken> M>
void code(Coder& coder, M& message) {
  code_devices(coder, message.devices);
  coder.number(message.epoch);
  coder.list(message.ends, max_sequences, 12, [](auto& c, auto& end) { code(c, end); });
  coder.kind(message.kind);
  coder.number(message.process);
  coder.text(message.text, max_text);
}
template <class Coder, Is<Why> M>
void code(Coder& coder, M& message) {
  coder.number(message.question);
  code_devices(coder, message.devices);
  coder.number(message.epoch);
  code(coder, message.direction);
  coder.number(message.operation);
}
template <class Coder, Is<Gone> M>
void code(Coder& coder, M& message) {
  coder.number(message.process);
  coder.kind(message.kind);
  coder.text(message.text, max_text);
}
template <class Coder, Is<Joined> M>
void code(Coder& coder, M& message) {
  coder.number(message.process);
  code(coder, message.facts);
}
template <class Coder, Is<DataHello> M>
void code(Coder& coder, M& message) {
  std::array<std::byte, 4> begin = magic;
  coder.fixed(begin);
  if (begin != magic) malformed("another program's");
  coder.fixed(message.token);
  coder.number(message.process);
  coder.number(message.restart);
}
template <class Coder, Is<OperationOfAll> M>
void code(Coder& coder, M& name) {
  code_devices(coder, name.devices);
  coder.number(name.epoch);
  code(coder, name.direction);
  coder.number(name.operation);
}
template <class Coder, Is<InputOfRank> M>
void code(Coder& coder, M& rank) {
  coder.number(rank.place);
  coder.text(rank.refusal, max_text);
  coder.list(rank.bytes, max_requests, sizeof(std::uint64_t), [](auto& c, auto& bytes) { c.number(bytes); });
}
constexpr std::size_t input_of_rank_bytes = 10;  // without a text and requests
template <class Coder, Is<Inputs> M>
void code(Coder& coder, M& message) {
  code(coder, message.of);
  coder.list(message.ranks, max_devices, input_of_rank_bytes, [](auto& c, auto& rank) { code(c, rank); });
}
template <class Coder, Is<AbortedOperation> M>
void code(Coder& coder, M& message) {
  code(coder, message.of);
  coder.kind(message.kind);
  coder.text(message.text, max_text);
}

template <class Coder, Is<Share> M>
void code(Coder& coder, M& message) {
  code(coder, message.of);
  coder.bytes(message.bytes, max_shared);
}
template <class Coder, Is<Mark> M>
void code(Coder& coder, M& message) {
  coder.number(message.id);
  code(coder, message.of);
  coder.kind(message.kind);
  coder.text(message.text, max_text);
}
template <class Coder, Is<MarkNoted> M>
void code(Coder& coder, M& message) {
  coder.number(message.id);
}

template <class Coder, Is<LinkCheck> M>
void code(Coder& coder, M& message) {
  auto kind = static_cast<std::uint8_t>(message.kind);
  coder.number(kind);
  if (kind > static_cast<std::uint8_t>(LinkCheck::Kind::Broken)) malformed("an unknown check of a link");
  if constexpr (!std::is_const_v<M>) message.kind = static_cast<LinkCheck::Kind>(kind);
  coder.number(message.process);
  coder.number(message.restart);
  coder.number(message.bytes);
}

constexpr auto code_alternative = [](auto& coder, auto& message) { code(coder, message); };

}  // namespace

std::vector<std::byte> encode(const Message& message) { return encode_variant(message, code_alternative); }

Message decode(std::span<const std::byte> frame) { return decode_variant<Message>(frame, code_alternative); }

void cut(std::string& text, std::size_t most) { text.resize(length_up_to(text, most)); }

std::string name_of_process(std::uint16_t process, const ProcessFacts& facts) {
  const std::string number = "process " + std::to_string(process);
  return facts.host.empty() ? number : number + " (" + facts.host + ", pid " + std::to_string(facts.pid) + ")";
}

}  // namespace cox::detail::world
