#include <coxswain/tools/cox/nodes/node_message.hpp>

#include <coxswain/collectives/leader/message_coder.hpp>

#include <array>
#include <concepts>
#include <csignal>
#include <type_traits>
#include <utility>

namespace cox::tools {
namespace {

using detail::world::malformed;
using detail::world::MessageReader;
using detail::world::MessageWriter;

constexpr std::array<std::byte, 4> magic{std::byte{'C'}, std::byte{'O'}, std::byte{'X'}, std::byte{'N'}};
constexpr std::size_t max_name = 255;
constexpr std::size_t max_text = 4096;

template <class T, class Message>
concept Is = std::same_as<std::remove_const_t<T>, Message>;

void code_flag(MessageWriter& writer, bool flag) { writer.number(std::uint8_t{flag}); }
void code_flag(MessageReader& reader, bool& flag) {
  std::uint8_t coded = 0;
  reader.number(coded);
  if (coded > 1) malformed("a flag is neither 0 nor 1");
  flag = coded == 1;
}
void require_signal(std::uint8_t number) {
  if (number >= NSIG) malformed("an unknown signal");
}

template <class Coder, Is<NodeHello> M>
void code(Coder& coder, M& message) {
  std::array<std::byte, 4> begin = magic;
  coder.fixed(begin);
  if (begin != magic) malformed("another program's");
  coder.number(message.protocol);
  if constexpr (std::same_as<Coder, MessageReader>) {
    if (message.protocol != node_protocol_version) return coder.skip();
  }
  coder.fixed(message.token);
  coder.text(message.library, max_name);
  coder.number(message.node);
  coder.number(message.nodes);
  coder.number(message.processes);
  coder.text(message.host, max_name);
  coder.number(message.pid);
}
template <class Coder, Is<NodeStarted> M>
void code(Coder& coder, M& message) {
  coder.number(message.error);
  coder.list(message.pids, max_world_processes, sizeof(std::uint32_t), [](auto& c, auto& pid) { c.number(pid); });
}
template <class Coder, Is<ProcessEnded> M>
void code(Coder& coder, M& message) {
  coder.number(message.process);
  coder.number(message.code);
  coder.number(message.signal);
  require_signal(message.signal);
  code_flag(coder, message.before_failure);
  coder.number(message.kept_bytes);
  code_flag(coder, message.holds_memory);
  code_flag(coder, message.gpu_memory_is_lost);
  coder.text(message.report, max_fault_report);
}
template <class Coder, Is<NodeFinished> M>
void code(Coder& coder, M& message) {
  code_flag(coder, message.keeps);
  code_flag(coder, message.progresses);
  code_flag(coder, message.holds_memory);
  coder.number(message.kept_bytes);
}
template <class Coder, Is<NodeSignal> M>
void code(Coder& coder, M& message) {
  coder.number(message.number);
  require_signal(message.number);
}
template <class Coder, class M>
  requires Is<M, NodeHeartbeat> || Is<M, FailureNoted>
void code(Coder&, M&) {}
template <class Coder, Is<NodeRejected> M>
void code(Coder& coder, M& message) {
  coder.text(message.text, max_text);
  code_flag(coder, message.may_retry);
}
template <class Coder, Is<StartNode> M>
void code(Coder& coder, M& message) {
  coder.number(message.restart);
  coder.number(message.first_process);
  coder.number(message.processes);
  coder.number(message.leader_port);
  coder.fixed(message.token);
  coder.text(message.run, max_name);
  coder.text(message.last_fault, max_fault_report);
}
template <class Coder, Is<SignalNode> M>
void code(Coder& coder, M& message) {
  coder.number(message.process);
  coder.number(message.number);
  require_signal(message.number);
}
template <class Coder, Is<FinishNode> M>
void code(Coder& coder, M& message) {
  code_flag(coder, message.gpu_memory_is_lost);
}
template <class Coder, Is<EndNode> M>
void code(Coder& coder, M& message) {
  coder.number(message.code);
  coder.text(message.text, max_text);
}

constexpr auto code_alternative = [](auto& coder, auto& message) { code(coder, message); };

}  // namespace

std::string printable(std::string text) {
  for (char& letter : text)
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) letter = '?';
  return text;
}

std::vector<std::byte> encode(const NodeMessage& message) {
  return detail::world::encode_variant(message, code_alternative);
}

void decode_into(NodeMessage& message, std::span<const std::byte> encoded) {
  message = detail::world::decode_variant<NodeMessage>(encoded, code_alternative);
}

}  // namespace cox::tools
