#pragma once

#include <coxswain/tests/support/temporary_folder.hpp>

#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/collectives/link/control_link.hpp>
#include <coxswain/collectives/store/folder_store.hpp>
#include <coxswain/collectives/store/world_token.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace cox::test {

/// A connection that sends what the test wants. Its functions wait for at most 20 s.
class RawConnection {
 public:
  RawConnection(const std::string& address, std::uint16_t port) : RawConnection() { connect(address, port); }
  RawConnection() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) { limit_waits(); }
  explicit RawConnection(int accepted) : socket_(accepted) { limit_waits(); }
  RawConnection(RawConnection&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  RawConnection& operator=(RawConnection&&) = delete;
  ~RawConnection() {
    if (socket_ >= 0) ::close(socket_);
  }

  void connect(const std::string& address, std::uint16_t port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    ::inet_pton(AF_INET, address.c_str(), &to.sin_addr);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
      throw std::runtime_error("cannot connect");
  }

  /// Returns false if the other end has closed the connection.
  bool send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }
  bool send(const detail::world::Message& message) { return send(detail::world::frame_of(message)); }
  /// The other end then finds that nothing more comes.
  void end_sending() { ::shutdown(socket_, SHUT_WR); }
  /// Waits until the other end has closed the connection, and discards what it sends before that.
  [[nodiscard]] bool is_closed_by_other() {
    std::array<std::byte, 4096> discarded;
    ssize_t got = 0;
    do got = ::recv(socket_, discarded.data(), discarded.size(), 0);
    while (got > 0);
    return got == 0 || errno == ECONNRESET;
  }
  /// Waits for a message. Those that come only if a world starts slowly are left out.
  [[nodiscard]] detail::world::Message receive() {
    for (;;) {
      std::array<std::byte, 4> length{};
      receive(length);
      std::vector<std::byte> frame(detail::world::length_of(length));
      receive(frame);
      detail::world::Message message = detail::world::decode(frame);
      if (!std::holds_alternative<detail::world::Awaited>(message)) return message;
    }
  }

  /// Makes it a listener on a free port of the loopback device. Returns the port.
  std::uint16_t listen() {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof at;
    if (::bind(socket_, reinterpret_cast<const sockaddr*>(&at), bytes) != 0 || ::listen(socket_, 8) != 0 ||
        ::getsockname(socket_, reinterpret_cast<sockaddr*>(&at), &bytes) != 0)
      throw std::runtime_error("cannot listen");
    return ntohs(at.sin_port);
  }
  [[nodiscard]] RawConnection accept() const { return RawConnection(::accept(socket_, nullptr, nullptr)); }

 private:
  void limit_waits() const {
    const timeval most{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
  }
  void receive(std::span<std::byte> all) {
    if (::recv(socket_, all.data(), all.size(), MSG_WAITALL) != static_cast<ssize_t>(all.size()))
      throw std::runtime_error("no message");
  }

  int socket_;
};

/// A process of a world that does not keep to the protocol.
class RawProcess {
 public:
  RawProcess(const TemporaryFolder& folder, std::uint16_t process, std::uint16_t processes)
      : process_(process), processes_(processes) {
    cox::detail::FolderStore store(
        {.folder = folder.path(), .process = process, .processes = processes, .run = "test"});
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto value = store.get("leader", deadline);
    store.close(deadline);
    std::string text;
    for (const std::byte byte : value) text += static_cast<char>(byte);
    std::istringstream words(text);
    std::string token;
    words >> address_ >> port_ >> token;
    token_ = cox::detail::parse_token(token).value();
  }

  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] RawConnection connect() const { return {address_, port_}; }
  [[nodiscard]] detail::world::Hello hello() const {
    return {.token = token_,
            .library = COX_VERSION,
            .run = "test",
            .process = process_,
            .processes = processes_,
            .facts = {.host = "raw",
                      .pid = 1,
                      .data_address = "127.0.0.1",
                      .data_port = data_port_,
                      .devices = {{0, process_, static_cast<std::uint16_t>(process_ + 1)}}}};
  }
  [[nodiscard]] detail::world::DataHello data_hello() const { return {.token = token_, .process = process_}; }
  /// Has processes with higher numbers find this one. Call before join().
  void listen() { data_port_ = listener_.listen(); }
  [[nodiscard]] RawConnection accept() const { return listener_.accept(); }
  enum class Says { Connected, Nothing };
  /// Joins as a process should: connects to the leader, and for data to all processes with lower numbers, and says that
  /// it has done so.
  void join(Says says = Says::Connected) {
    control_.emplace(connect());
    control_->send(hello());
    const detail::world::Message message = control_->receive();
    for (const auto& facts : std::get<detail::world::Welcome>(message).processes)
      if (data_.size() < process_) {
        data_.emplace_back(facts.data_address, facts.data_port);
        data_.back().send(data_hello());
      }
    if (says == Says::Connected) control_->send(detail::world::Connected{});
  }
  [[nodiscard]] RawConnection& control() { return *control_; }
  [[nodiscard]] RawConnection& data(std::size_t process) { return data_.at(process); }

 private:
  std::uint16_t process_;
  std::uint16_t processes_;
  std::string address_;
  std::uint16_t port_ = 0;
  detail::world::Token token_{};
  RawConnection listener_;
  std::uint16_t data_port_ = 1;
  std::optional<RawConnection> control_;
  std::vector<RawConnection> data_;
};

}  // namespace cox::test
