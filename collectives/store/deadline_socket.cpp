#include <coxswain/collectives/store/deadline_socket.hpp>

#include <coxswain/collectives/store/store_error.hpp>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <optional>
#include <thread>

namespace cox::detail {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::seconds longest_try{3};  // then the host name is looked up again

}  // namespace

struct DeadlineSocket::Connection {
  asio::io_context io{1};
  tcp::socket socket{io};

  /// Starts an operation by `start(handler)`, and runs it until it has completed or the deadline has passed. Then it is
  /// ended by `end()`, and the result is asio::error::timed_out.
  template <class Start, class End>
  error_code run(Store::Deadline deadline, Start&& start, End&& end) {
    std::optional<error_code> result;
    start([&result](const error_code& error, const auto&...) { result = error; });
    io.restart();
    io.run_until(deadline);
    io.restart();
    io.poll();  // what is ready has completed, although the deadline has passed
    if (result) return *result;
    end();
    io.restart();
    io.run();
    return asio::error::timed_out;
  }
  /// Of several steps (resolve, connect, read, write). The deadline closes the socket: cancel() would end the step that
  /// is in flight, but not the next one, if a step has just completed.
  template <class Start>
  error_code run(Store::Deadline deadline, Start&& start) {
    return run(deadline, start, [this] {
      error_code ignored;
      socket.close(ignored);
    });
  }
};

DeadlineSocket::DeadlineSocket(const std::string& host, std::uint16_t port, Store::Deadline deadline)
    : peer_(host_and_port(host, port)), connection_(std::make_unique<Connection>()) {
  connect(host, port, deadline);
}

DeadlineSocket::~DeadlineSocket() = default;

void DeadlineSocket::connect(const std::string& host, std::uint16_t port, Store::Deadline deadline) {
  constexpr std::chrono::milliseconds longest_pause{250};
  std::chrono::milliseconds pause{2};
  std::optional<error_code> reason;  // of the last try that was not ended by its deadline
  for (;;) {
    Connection& each = *connection_;
    const auto until = std::chrono::steady_clock::now() + time_until(deadline, longest_try);
    tcp::resolver resolver(each.io);
    tcp::resolver::results_type found;
    error_code error = each.run(until, [&](auto handler) {
      resolver.async_resolve(host, std::to_string(port), tcp::resolver::numeric_service,
                             [&found, handler](const error_code& failed, const tcp::resolver::results_type& results) {
                               found = results;
                               handler(failed);
                             });
    });
    if (!error) error = each.run(until, [&](auto handler) { asio::async_connect(each.socket, found, handler); });
    if (!error) {
      // On one host, a connection to a port without a listener can be given this port as its own, and reach itself.
      if (each.socket.local_endpoint(error) != each.socket.remote_endpoint(error) && !error) break;
      if (!error) error = asio::error::connection_refused;
    }
    if (!reason || error != asio::error::timed_out) reason = error;
    connection_ = std::make_unique<Connection>();
    if (std::chrono::steady_clock::now() + pause >= deadline)
      throw StoreError(StoreError::Kind::Unreachable, "cannot connect to " + peer_ + ": " + reason->message());
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, longest_pause);
  }
  error_code ignored;
  connection_->socket.set_option(tcp::no_delay(true), ignored);
}

void DeadlineSocket::send(std::span<const std::byte> bytes, Store::Deadline deadline) {
  require_open();
  const error_code error = connection_->run(deadline, [&](auto handler) {
    asio::async_write(connection_->socket, asio::buffer(bytes.data(), bytes.size()), handler);
  });
  if (!error) return;
  close();
  throw StoreError(StoreError::Kind::Unreachable, "the connection to " + peer_ + " is lost: " + error.message());
}

void DeadlineSocket::receive(std::span<std::byte> bytes, Store::Deadline deadline) {
  require_open();
  const error_code error = connection_->run(deadline, [&](auto handler) {
    asio::async_read(connection_->socket, asio::buffer(bytes.data(), bytes.size()), handler);
  });
  if (!error) return;
  close();
  throw StoreError(StoreError::Kind::Unreachable, error == asio::error::eof
                                                      ? peer_ + " has closed the connection"
                                                      : "the connection to " + peer_ + " is lost: " + error.message());
}

bool DeadlineSocket::wait_readable(Store::Deadline deadline) {
  require_open();
  return !connection_->run(
      deadline, [&](auto handler) { connection_->socket.async_wait(tcp::socket::wait_read, handler); },
      [&] {
        error_code ignored;
        connection_->socket.cancel(ignored);
      });
}

void DeadlineSocket::close() noexcept {
  error_code ignored;
  connection_->socket.close(ignored);
}

void DeadlineSocket::require_open() const {
  if (connection_->socket.is_open()) return;
  throw StoreError(StoreError::Kind::Unreachable, "the connection to " + peer_ + " is closed");
}

std::string host_and_port(const std::string& host, std::uint16_t port) {
  const bool six = host.find(':') != std::string::npos;
  return (six ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace cox::detail
