#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cox::stress {

/// Stands between the processes of a world: each of them connects to the proxy, which connects to the other process and
/// forwards the messages. The world knows nothing of it: the proxy replaces the addresses that the leader sends in its
/// Welcome. It has a thread of its own.
class LinkProxy {
 public:
  using Clock = std::chrono::steady_clock;

  /// A connection of two processes: that of a process to process 0 for control, or one for data.
  struct Link {
    std::uint16_t lower = 0;
    std::uint16_t higher = 0;
    bool is_data = false;

    friend auto operator<=>(const Link&, const Link&) = default;
  };
  /// A message that has arrived at the proxy and is not yet forwarded.
  struct Passing {
    Link link;
    std::uint16_t from = 0;
    std::size_t type = 0;  ///< index in detail::world::Message
  };
  /// Called for each message, on the thread of the proxy. It may call the functions below; they apply to this message.
  using Seen = std::function<void(const Passing&)>;

  /// The leader listens at that address. `seen` must not throw.
  LinkProxy(const std::string& host, std::uint16_t port, std::size_t processes, Seen seen);
  LinkProxy(const LinkProxy&) = delete;
  LinkProxy& operator=(const LinkProxy&) = delete;
  ~LinkProxy();

  /// Where a process other than 0 reaches the leader, on the loopback device.
  [[nodiscard]] std::uint16_t port_for(std::uint16_t process) const { return ports_.at(process); }

  // Within `seen`:

  /// Nothing that the process has sent is forwarded any more. The end of its connections is.
  void discard_from(std::uint16_t process);
  /// Nothing that the process has sent is forwarded until release_from().
  void hold_from(std::uint16_t process);
  /// The connection ends for both processes.
  void end(const Link& link);
  /// The connection ends for that process, which then closes it.
  void end_towards(const Link& link, std::uint16_t process);
  /// Nothing is forwarded on the connection any more, and neither process learns that.
  void silence(const Link& link);

  // Any thread:

  void release_from(std::uint16_t process);
  /// Messages from and to that process arrive so much later. For connections that are made after this.
  void delay(std::uint16_t process, std::chrono::nanoseconds time);

 private:
  using Tcp = boost::asio::ip::tcp;
  struct Pipe;
  struct Connection;

  [[nodiscard]] std::uint16_t listen(Link link, std::uint16_t from, const Tcp::endpoint& target);
  boost::asio::awaitable<void> accept(std::shared_ptr<Tcp::acceptor> acceptor, Link link, std::uint16_t from,
                                      Tcp::endpoint target);
  boost::asio::awaitable<void> read(std::shared_ptr<Connection> connection, std::size_t side);
  boost::asio::awaitable<void> read_messages(Connection& connection, std::size_t side);
  boost::asio::awaitable<void> write(std::shared_ptr<Connection> connection, std::size_t side);
  boost::asio::awaitable<void> pass(Connection& connection, std::size_t side, std::vector<std::byte> bytes);
  [[nodiscard]] std::vector<std::byte> with_own_addresses(const std::vector<std::byte>& frame, std::uint16_t process);
  template <class F>
  void for_each_pipe_from(std::uint16_t process, const F& f);
  template <class F>
  void for_each(const Link& link, const F& f);

  boost::asio::io_context io_;
  const std::size_t processes_;
  const Seen seen_;
  std::vector<std::uint16_t> ports_;  // by process
  std::vector<std::shared_ptr<Connection>> connections_;
  std::map<std::uint16_t, std::chrono::nanoseconds> delays_;
  std::thread thread_;
};

}  // namespace cox::stress
