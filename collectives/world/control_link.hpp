#pragma once

#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/collectives/world/send_queue.hpp>

#include <boost/asio/ip/tcp.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
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
  /// Sends a message, or as much as the socket takes, at once; the rest follows. Any thread; in order. Drops it if the
  /// connection has ended. Throws MalformedMessage (it is too large), std::bad_alloc.
  void send(const Message& message);
  void close() noexcept;

  /// The last time at which a message arrived; when it was made, if none has.
  [[nodiscard]] std::chrono::steady_clock::time_point last_heard() const noexcept { return heard_; }
  [[nodiscard]] Socket& socket() noexcept { return socket_; }

 private:
  void read_length();
  void read_frame(std::size_t bytes);
  void end(const std::string& why);

  Socket socket_;
  SendQueue queue_;
  std::size_t largest_;
  Handlers handlers_;
  std::array<std::byte, 4> length_{};
  std::vector<std::byte> frame_;
  std::chrono::steady_clock::time_point heard_ = std::chrono::steady_clock::now();
  bool closed_ = false;
};

/// What the sockets of a world have in common: they do not block, and small messages are not delayed.
void set_options(boost::asio::ip::tcp::socket& socket);
/// The message as it is sent: its length, then its bytes.
[[nodiscard]] std::vector<std::byte> frame_of(const Message& message);
[[nodiscard]] std::size_t length_of(const std::array<std::byte, 4>& bytes) noexcept;

}  // namespace cox::detail::world
