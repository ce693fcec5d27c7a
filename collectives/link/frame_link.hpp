#pragma once

#include <coxswain/collectives/leader/message_coder.hpp>
#include <coxswain/collectives/link/send_queue.hpp>

#include <boost/asio/ip/tcp.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cox::detail::world {

/// A connection that carries encoded messages, each after its length (four bytes, little endian): the part of a
/// MessageLink that does not depend on their type. Its functions are for the thread of its executor, except send().
class FrameLink : public std::enable_shared_from_this<FrameLink> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  struct Handlers {
    /// An encoded message; the bytes are valid during the call.
    std::function<void(std::span<const std::byte> encoded)> received;
    /// The connection has ended, for this reason; called once, unless close() was called before.
    std::function<void(const std::string& why)> ended;
  };

  /// `largest`: bytes of a message that the other end may send, until restart().
  explicit FrameLink(Socket socket, std::size_t largest = max_frame);
  FrameLink(const FrameLink&) = delete;
  FrameLink& operator=(const FrameLink&) = delete;
  ~FrameLink();

  /// Calls the handlers from now on. They may close the link, which then calls none of them any more.
  void start(Handlers handlers);
  /// Calls these handlers instead, also from within one of the former. Messages may have up to max_frame bytes from
  /// now on.
  void restart(Handlers handlers);
  /// Sends an encoded message: see SendQueue. Any thread; in order. Drops it if the connection has ended. Throws
  /// std::bad_alloc.
  void send(std::span<const std::byte> encoded);
  /// Has the thread of the executor send several messages together, as append_frame() has made them.
  void send_later(std::vector<std::byte> frames);
  /// What was sent before is passed to the socket, as far as it takes it.
  void close() noexcept;

  /// The last time at which a message arrived; when it was made, if none has.
  [[nodiscard]] std::chrono::steady_clock::time_point last_heard() const noexcept { return heard_; }
  [[nodiscard]] Socket& socket() noexcept { return socket_; }

 protected:
  /// Ends the connection, and reports the reason to the handler.
  void end(const std::string& why);

 private:
  void wait_readable();
  void wait_writable();
  void flush_later();
  void read();

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

/// How many connections may not have said yet which process they come from; see Unidentified.
inline constexpr std::size_t most_unidentified = 1024;
/// When a connection could not be accepted, for lack of descriptors.
inline constexpr std::chrono::milliseconds accept_again_after{50};

/// What the sockets of a world have in common: they do not block, and small messages are not delayed.
void set_options(boost::asio::ip::tcp::socket& socket);
/// The encoded message as it is sent: its length, then its bytes.
[[nodiscard]] std::vector<std::byte> frame_of(std::span<const std::byte> encoded);
/// The same behind what is in `frames`.
void append_frame(std::span<const std::byte> encoded, std::vector<std::byte>& frames);
inline constexpr std::size_t length_bytes = 4;
[[nodiscard]] std::size_t length_of(std::span<const std::byte, length_bytes> bytes) noexcept;

}  // namespace cox::detail::world
