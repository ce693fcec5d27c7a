#pragma once

#include <coxswain/collectives/link/frame_link.hpp>
#include <coxswain/collectives/store/world_token.hpp>
#include <coxswain/runtime/socket/local_socket.hpp>
#include <coxswain/tests/tools/nodes.hpp>
#include <coxswain/tools/cox/nodes/node_message.hpp>
#include <coxswain/tools/cox/version.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace cox::test {

/// An end of a connection between two agents that the test plays itself. What blocks does so for `longest_wait` at
/// most, and then throws std::runtime_error.
class NodePeer {
 public:
  using Tcp = boost::asio::ip::tcp;

  explicit NodePeer(Tcp::socket socket) : socket_(std::move(socket)) {}
  /// Connects to the agent of node 0 at that port of this host.
  NodePeer(boost::asio::io_context& io, std::uint16_t port) : socket_(io) {
    socket_.connect({boost::asio::ip::address_v4::loopback(), port});
  }

  void send_bytes(std::span<const std::byte> bytes) {
    if (::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != std::ssize(bytes))
      throw std::runtime_error("the message cannot be sent");
  }
  void send(const tools::NodeMessage& message) { send_bytes(detail::world::frame_of(tools::encode(message))); }
  /// The next message that is no heartbeat; std::nullopt: the other end has closed the connection.
  std::optional<tools::NodeMessage> receive() {
    for (;;) {
      std::array<std::byte, detail::world::length_bytes> length{};
      if (!read(length)) return std::nullopt;
      std::vector<std::byte> encoded(detail::world::length_of(length));
      if (!read(encoded)) return std::nullopt;
      tools::NodeMessage message;
      tools::decode_into(message, encoded);
      if (!std::holds_alternative<tools::NodeHeartbeat>(message)) return message;
    }
  }
  /// The next message, which has this type. A FailureNoted before it is left out: whether it is sent can depend on
  /// which of several nodes node 0 hears first. Throws std::runtime_error if it has not that type.
  template <class Message>
  Message receive_a() {
    auto message = receive();
    if (message && std::holds_alternative<tools::FailureNoted>(*message) &&
        !std::holds_alternative<tools::FailureNoted>(tools::NodeMessage(Message{})))
      message = receive();
    if (!message || !std::holds_alternative<Message>(*message))
      throw std::runtime_error("expected a message of type " + std::to_string(tools::NodeMessage(Message{}).index()) +
                               ", got " + (message ? std::to_string(message->index()) : "the end of the connection"));
    return std::get<Message>(*message);
  }
  void close() { socket_.close(); }

 private:
  // Returns false if the connection has ended.
  bool read(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      if (!is_readable(socket_.native_handle(), longest_wait_ms)) throw std::runtime_error("no message has arrived");
      const ssize_t got = ::recv(socket_.native_handle(), bytes.data(), bytes.size(), 0);
      if (got <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    }
    return true;
  }

  Tcp::socket socket_;
};

/// A hello of an agent of that node, with `secret`.
inline tools::NodeHello hello_of(std::uint16_t node, std::uint16_t nodes, std::uint16_t processes = 1) {
  return {.token = detail::parse_token(secret).value(),
          .library = std::string(tools::version),
          .node = node,
          .nodes = nodes,
          .processes = processes,
          .host = "host" + std::to_string(node),
          .pid = 1};
}

/// The agent of a node, played by the test, in a world that an agent of node 0 leads.
class PlayedNode : public NodePeer {
 public:
  PlayedNode(boost::asio::io_context& io, std::uint16_t port, std::uint16_t node, std::uint16_t nodes)
      : NodePeer(io, port) {
    send(hello_of(node, nodes));
  }
  /// Takes the start of a run, and reports that its process has been started.
  tools::StartNode start_run() {
    auto run = receive_a<tools::StartNode>();
    send(tools::NodeStarted{.pids = {1}});
    return run;
  }
};

/// The agent of node 0, played by the test.
class PlayedHead {
 public:
  PlayedHead() : acceptor_(io_, {boost::asio::ip::address_v4::loopback(), 0}) {}
  [[nodiscard]] std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  /// The next connection, once its hello has arrived.
  NodePeer accept() {
    if (!is_readable(acceptor_.native_handle(), longest_wait_ms)) throw std::runtime_error("no agent has connected");
    NodePeer peer(acceptor_.accept());
    static_cast<void>(peer.receive_a<tools::NodeHello>());
    return peer;
  }

 private:
  boost::asio::io_context io_;
  boost::asio::ip::tcp::acceptor acceptor_;
};

}  // namespace cox::test
