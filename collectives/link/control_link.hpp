#pragma once

#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/collectives/link/send_queue.hpp>

#include <boost/asio/ip/tcp.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cox::detail::world {

/// A connection between a process and the leader: messages, each after its length (four bytes, little endian). Its
/// functions are for the thread of its executor, except send().
class ControlLink : public std::enable_shared_from_this<ControlLink> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  struct Handlers {
    std::function<void(Message)> received;
    /// The connection has ended, for this reason; called once, unless close() was called before.
    std::function<void(const std::string& why)> ended;
  };

  /// `largest`: bytes of a message that the other end may send, until restart().
  explicit ControlLink(Socket socket, std::size_t largest = max_frame);
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;
  ~ControlLink();

  /// Calls the handlers from now on. They may close the link, which then calls none of them any more.
  void start(Handlers handlers);
  /// Calls these handlers instead, also from within one of the former. Messages may have up to max_frame bytes from
  /// now on.
  void restart(Handlers handlers);
  /// Sends a message: see SendQueue. Any thread; in order. Drops it if the connection has ended. Throws
  /// MalformedMessage (it is too large), std::bad_alloc.
  void send(const Message& message);
  /// What was sent before is passed to the socket, as far as it takes it.
  void close() noexcept;

  /// The last time at which a message arrived; when it was made, if none has.
  [[nodiscard]] std::chrono::steady_clock::time_point last_heard() const noexcept { return heard_; }
  [[nodiscard]] Socket& socket() noexcept { return socket_; }

 private:
  void wait_readable();
  void wait_writable();
  void flush_later();
  void read();
  void end(const std::string& why);

  Socket socket_;
  SendQueue queue_;
  std::size_t largest_;
  Handlers handlers_;
  std::vector<std::byte> bytes_;  // that were read; those from begin_ to end_ have not been passed on
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::chrono::steady_clock::time_point heard_ = std::chrono::steady_clock::now();
  bool closed_ = false;
};

/// How many connections may not have said yet which process they come from; more are closed.
inline constexpr std::size_t most_unidentified = 1024;
/// When a connection could not be accepted, for lack of descriptors.
inline constexpr std::chrono::milliseconds accept_again_after{50};

/// What the sockets of a world have in common: they do not block, and small messages are not delayed.
void set_options(boost::asio::ip::tcp::socket& socket);
/// Programs that this process starts do not inherit the descriptor. Otherwise they would keep the connection open after
/// the process has ended.
void close_on_exec(int descriptor) noexcept;
/// The message as it is sent: its length, then its bytes.
[[nodiscard]] std::vector<std::byte> frame_of(const Message& message);
inline constexpr std::size_t length_bytes = 4;
[[nodiscard]] std::size_t length_of(std::span<const std::byte, length_bytes> bytes) noexcept;

}  // namespace cox::detail::world
