#pragma once

#include <coxswain/collectives/store/store.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace cox::detail {

/// A TCP connection whose calls block until they have completed or a deadline has passed. Errors are StoreError
/// Unreachable, and close the connection. One thread at a time.
class DeadlineSocket {
 public:
  /// Connects to host:port. Retries with back-off, since the listener may start later; when the deadline has passed,
  /// the error says why the last one failed. The system's look-up of a host name can take longer than the deadline.
  DeadlineSocket(const std::string& host, std::uint16_t port, Store::Deadline deadline);
  DeadlineSocket(const DeadlineSocket&) = delete;
  DeadlineSocket& operator=(const DeadlineSocket&) = delete;
  ~DeadlineSocket();

  /// Sends all of the bytes.
  void send(std::span<const std::byte> bytes, Store::Deadline deadline);
  /// Receives as many bytes as `bytes` has.
  void receive(std::span<std::byte> bytes, Store::Deadline deadline);
  /// Waits until bytes can be received, or the other end has closed the connection. Returns false if the deadline has
  /// passed; the connection stays usable.
  [[nodiscard]] bool wait_readable(Store::Deadline deadline);
  void close() noexcept;

  /// "127.0.0.1:2950", as it was passed.
  [[nodiscard]] const std::string& peer() const noexcept { return peer_; }

 private:
  struct Connection;

  void connect(const std::string& host, std::uint16_t port, Store::Deadline deadline);
  void require_open() const;

  std::string peer_;
  std::unique_ptr<Connection> connection_;
};

/// "host:port", with brackets around an IPv6 address.
[[nodiscard]] std::string host_and_port(const std::string& host, std::uint16_t port);

}  // namespace cox::detail
