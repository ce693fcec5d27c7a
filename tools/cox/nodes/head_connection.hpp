#pragma once

#include <coxswain/collectives/link/silence.hpp>
#include <coxswain/tools/cox/nodes/connection_wait.hpp>
#include <coxswain/tools/cox/nodes/node_message.hpp>
#include <coxswain/tools/cox/nodes/node_options.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cox::tools {

/// The connection of an agent to that of node 0 (the head). Until the head has sent its first message, it is made again
/// whenever it ends. After that it is lost if it ends, or if the head is silent for longer than world.silence, and is
/// not made again, unless that is requested. One thread.
class HeadConnection {
 public:
  /// Begins to connect. While that fails it is tried again, since the head may be started later. `hello` is the first
  /// message.
  HeadConnection(const NodeOptions& options, NodeHello hello);
  HeadConnection(const HeadConnection&) = delete;
  HeadConnection& operator=(const HeadConnection&) = delete;
  ~HeadConnection();

  /// Blocks until a descriptor is readable, or the connection has had something to do, or the time has elapsed.
  void wait(const std::vector<int>& descriptors, std::optional<std::chrono::nanoseconds> longest);
  [[nodiscard]] bool is_connected() const noexcept { return link_ != nullptr && !lost_; }
  /// Whether the head has sent a message.
  [[nodiscard]] bool is_answered() const noexcept { return is_connected() && is_answered_; }
  /// Why the connection is lost; std::nullopt: it is not.
  [[nodiscard]] const std::optional<std::string>& lost() const noexcept { return lost_; }
  /// Why the last attempt to connect has failed.
  [[nodiscard]] const std::string& last_failure() const noexcept { return last_failure_; }
  /// Whether take() has a message to return.
  [[nodiscard]] bool has_message() const noexcept { return !messages_.empty(); }
  /// The next message, also after the connection is lost; std::nullopt: none has arrived.
  [[nodiscard]] std::optional<NodeMessage> take();
  /// Does nothing if the connection is lost.
  void send(const NodeMessage& message);
  /// Closes the connection, for this reason. It is made again if the head has sent no message.
  void lose(const std::string& why);
  /// Closes the connection, and connects again later. `why`: see last_failure().
  void connect_again(const std::string& why);
  /// "127.0.0.1:29400": as in the options.
  [[nodiscard]] std::string address() const;
  /// The value of COX_WORLD for a leader that listens on this port of the head's host.
  [[nodiscard]] std::string leader(std::uint16_t port) const;

 private:
  using Tcp = boost::asio::ip::tcp;
  using Time = std::chrono::steady_clock::time_point;

  void connect();
  void connect_later(const std::string& why);
  void begin();
  void send_heartbeats();

  const NodeOptions options_;
  const NodeHello hello_;
  const std::chrono::nanoseconds heartbeat_;
  const std::chrono::nanoseconds silence_limit_;
  boost::asio::io_context io_;
  ConnectionWait wait_{io_};
  boost::asio::steady_timer timer_{io_};  // until the next attempt, then until the next heartbeat
  Tcp::resolver resolver_{io_};
  Tcp::socket socket_{io_};
  std::chrono::milliseconds pause_{2};
  std::string last_failure_ = "no answer";
  std::shared_ptr<NodeLink> link_;  // null: not connected yet
  std::string host_;                // address of the head, as this host reaches it
  std::deque<NodeMessage> messages_;
  detail::world::Silence silence_;
  Time last_heartbeat_;
  Time running_since_;  // this process was not held up since then
  bool is_answered_ = false;
  std::optional<std::string> lost_;
};

}  // namespace cox::tools
