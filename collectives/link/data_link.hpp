#pragma once

#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/collectives/link/control_link.hpp>
#include <coxswain/collectives/link/send_queue.hpp>

#include <boost/asio/ip/tcp.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cox::detail::world {

/// A connection to another process that carries the inputs of ranks. They are received straight into the memory that
/// the operation names. While it is not known where they go, nothing is read. Its functions are for the thread of its
/// executor, unless they say otherwise.
class DataLink : public std::enable_shared_from_this<DataLink> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  /// Where inputs go.
  struct Place {
    enum class Kind : std::uint8_t { Known, NotYetKnown, Discard, Wrong };
    Kind kind = Kind::Discard;
    std::vector<std::span<std::byte>> memory{};  ///< if Known: for each part that has bytes
    std::shared_ptr<void> owner{};               ///< keeps the memory
  };
  struct Handlers {
    /// Asked for each message, and again after resume() if the answer was NotYetKnown. Wrong ends the connection.
    std::function<Place(const Inputs&)> place;
    /// All bytes have arrived in their place. Returns false if that ends the connection.
    std::function<bool(const Inputs&)> received;
    std::function<bool(const AbortedOperation&)> aborted;
    /// The connection has ended, for this reason; called once, unless close() was called before.
    std::function<void(const std::string& why)> ended;
  };

  /// What both ends have exchanged on the connection before counts for sent_bytes() and received_bytes().
  struct BytesBefore {
    std::uint64_t sent;
    std::uint64_t received;
  };

  explicit DataLink(Socket socket, BytesBefore before = {0, 0});
  DataLink(const DataLink&) = delete;
  DataLink& operator=(const DataLink&) = delete;
  ~DataLink();

  void start(Handlers handlers);
  /// See SendQueue. Any thread.
  [[nodiscard]] SendQueue& queue() noexcept { return queue_; }
  /// The answer to `place` may be another one now. Any thread.
  void resume() noexcept;
  void close() noexcept;
  /// Ends the connection, and reports the reason to the handler.
  void end(const std::string& why);

  /// Bytes that were sent on the connection, and received on it, since it was made.
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept { return before_.sent + queue_.sent_bytes(); }
  [[nodiscard]] std::uint64_t received_bytes() const noexcept { return before_.received + received_; }
  /// Whether it reads what comes next: it does not wait for the place of inputs.
  [[nodiscard]] bool is_reading() const noexcept { return !closed_ && !waits_for_place_; }

 private:
  enum class Reading : std::uint8_t { Length, Frame, Bytes };

  void wait_readable();
  void wait_writable();
  void flush_later();
  void read();
  [[nodiscard]] bool read_message();
  [[nodiscard]] bool find_place();
  [[nodiscard]] bool next_part();

  Socket socket_;
  const BytesBefore before_;
  SendQueue queue_;
  Handlers handlers_;
  std::vector<std::byte> bytes_;  // that were read together; those from begin_ to end_ have no place yet
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t received_ = 0;
  Reading reading_ = Reading::Length;
  std::array<std::byte, length_bytes> length_{};
  std::vector<std::byte> frame_;
  std::span<std::byte> target_;  // where the next bytes go
  Inputs inputs_;
  Place place_;
  std::size_t next_part_ = 0;
  std::uint64_t to_discard_ = 0;
  std::vector<std::byte> discarded_;
  std::atomic<bool> is_resumed_{false};  // resume() was called since the last answer NotYetKnown
  bool waits_for_place_ = false;
  bool closed_ = false;
};

}  // namespace cox::detail::world
