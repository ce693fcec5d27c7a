#include <coxswain/tools/cox/world_stress/link_proxy.hpp>

#include <coxswain/collectives/leader/world_message.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <exception>
#include <span>
#include <variant>

namespace cox::stress {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using detail::world::Inputs;
using detail::world::Message;
using detail::world::Welcome;

constexpr std::size_t length_bytes = 4;
constexpr std::size_t piece_bytes = 65'536;

std::size_t length_in(std::span<const std::byte> bytes) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) length |= std::to_integer<std::size_t>(bytes[i]) << (8 * i);
  return length;
}

std::vector<std::byte> framed(const Message& message) {
  const std::vector<std::byte> content = detail::world::encode(message);
  std::vector<std::byte> frame(length_bytes + content.size());
  for (std::size_t i = 0; i < length_bytes; ++i) frame[i] = static_cast<std::byte>(content.size() >> (8 * i));
  std::ranges::copy(content, frame.begin() + length_bytes);
  return frame;
}

// The bytes that follow the message.
std::uint64_t data_after(std::span<const std::byte> content) {
  const Message message = detail::world::decode(content);
  const auto* const inputs = std::get_if<Inputs>(&message);
  std::uint64_t bytes = 0;
  if (inputs == nullptr) return 0;
  for (const auto& rank : inputs->ranks)
    for (const std::uint64_t each : rank.bytes) bytes += each;
  return bytes;
}

}  // namespace

/// One direction of a connection.
struct LinkProxy::Pipe {
  enum class State : std::uint8_t { Forwards, Holds, Discards };

  explicit Pipe(asio::io_context& io) : changed(io, Clock::time_point::max()) {}

  State state = State::Forwards;
  bool passes_end = true;  // the end of the sender is the end for the receiver
  bool ended = false;      // nothing more arrives
  std::chrono::nanoseconds delay{0};
  std::deque<std::pair<Clock::time_point, std::vector<std::byte>>> queue;  // with the times at which they are due
  asio::steady_timer changed;                                              // never expires; cancelled to wake waiters

  void wake() { changed.cancel(); }
};

struct LinkProxy::Connection {
  Connection(asio::io_context& io, Link between, std::array<std::uint16_t, 2> both)
      : link(between), processes(both), sockets{Tcp::socket(io), Tcp::socket(io)}, pipes{Pipe(io), Pipe(io)} {}

  Link link;
  std::array<std::uint16_t, 2> processes;
  std::array<Tcp::socket, 2> sockets;  // by side
  std::array<Pipe, 2> pipes;           // by the side that sends

  void close() {
    error_code ignored;
    for (Tcp::socket& socket : sockets) socket.close(ignored);
    for (Pipe& pipe : pipes) {
      pipe.ended = true;
      pipe.wake();
    }
  }
};

LinkProxy::LinkProxy(const std::string& host, std::uint16_t port, std::size_t processes, Seen seen)
    : processes_(processes), seen_(std::move(seen)), ports_(processes) {
  const Tcp::endpoint leader(asio::ip::make_address(host), port);
  for (std::uint16_t process = 1; process < processes; ++process)
    ports_[process] = listen({.lower = 0, .higher = process, .is_data = false}, process, leader);
  thread_ = std::thread([this] {
    const auto guard = asio::make_work_guard(io_);
    io_.run();
  });
}

LinkProxy::~LinkProxy() {
  io_.stop();
  thread_.join();
  for (const auto& connection : connections_) connection->close();
}

// Returns the port on which `from` finds the target. Accepts one connection.
std::uint16_t LinkProxy::listen(Link link, std::uint16_t from, const Tcp::endpoint& target) {
  const auto acceptor =
      std::make_shared<Tcp::acceptor>(io_, Tcp::endpoint(asio::ip::address_v4::loopback(), std::uint16_t{0}));
  const std::uint16_t port = acceptor->local_endpoint().port();
  asio::co_spawn(io_, accept(acceptor, link, from, target), asio::detached);
  return port;
}

asio::awaitable<void> LinkProxy::accept(std::shared_ptr<Tcp::acceptor> acceptor, Link link, std::uint16_t from,
                                        Tcp::endpoint target) {
  const std::uint16_t other = from == link.higher ? link.lower : link.higher;
  const auto connection = std::make_shared<Connection>(io_, link, std::array{from, other});
  try {
    connection->sockets[0] = co_await acceptor->async_accept(asio::use_awaitable);
    co_await connection->sockets[1].async_connect(target, asio::use_awaitable);
  } catch (const std::exception&) {  // the other process has ended
    connection->close();
    co_return;
  }
  connections_.push_back(connection);
  for (std::size_t side = 0; side < 2; ++side) {
    connection->sockets[side].set_option(Tcp::no_delay(true));
    for (const auto& [process, time] : delays_)
      if (process == link.lower || process == link.higher) connection->pipes[side].delay = time;
    asio::co_spawn(io_, read(connection, side), asio::detached);
    asio::co_spawn(io_, write(connection, side), asio::detached);
  }
}

asio::awaitable<void> LinkProxy::read(std::shared_ptr<Connection> connection, std::size_t side) {
  try {
    co_await read_messages(*connection, side);
  } catch (const std::exception&) {  // the connection has ended
  }
  connection->pipes[side].ended = true;
  connection->pipes[side].wake();
}

asio::awaitable<void> LinkProxy::read_messages(Connection& connection, std::size_t side) {
  Tcp::socket& socket = connection.sockets[side];
  for (;;) {
    std::vector<std::byte> frame(length_bytes);
    co_await asio::async_read(socket, asio::buffer(frame), asio::use_awaitable);
    frame.resize(length_bytes + length_in(frame));
    co_await asio::async_read(socket, asio::buffer(frame) + length_bytes, asio::use_awaitable);
    const std::size_t type = std::to_integer<std::size_t>(frame[length_bytes]) - 1;
    std::uint64_t more = data_after(std::span(frame).subspan(length_bytes));
    if (connection.pipes[side].state == Pipe::State::Forwards)
      seen_({.link = connection.link, .from = connection.processes[side], .type = type});
    if (type == Message(Welcome{}).index()) frame = with_own_addresses(frame, connection.processes[1 - side]);
    co_await pass(connection, side, std::move(frame));
    while (more > 0) {
      std::vector<std::byte> piece(static_cast<std::size_t>(std::min<std::uint64_t>(more, piece_bytes)));
      co_await asio::async_read(socket, asio::buffer(piece), asio::use_awaitable);
      more -= piece.size();
      co_await pass(connection, side, std::move(piece));
    }
  }
}

asio::awaitable<void> LinkProxy::pass(Connection& connection, std::size_t side, std::vector<std::byte> bytes) {
  Pipe& pipe = connection.pipes[side];
  while (pipe.state == Pipe::State::Holds) {
    error_code woken;
    co_await pipe.changed.async_wait(asio::redirect_error(asio::use_awaitable, woken));
  }
  if (pipe.state == Pipe::State::Discards) co_return;
  pipe.queue.emplace_back(Clock::now() + pipe.delay, std::move(bytes));
  pipe.wake();
}

asio::awaitable<void> LinkProxy::write(std::shared_ptr<Connection> connection, std::size_t side) {
  Pipe& pipe = connection->pipes[side];
  Tcp::socket& socket = connection->sockets[1 - side];
  try {
    for (;;) {
      while (pipe.queue.empty() && !pipe.ended) {
        error_code woken;
        co_await pipe.changed.async_wait(asio::redirect_error(asio::use_awaitable, woken));
      }
      if (pipe.queue.empty()) break;
      asio::steady_timer due(io_, pipe.queue.front().first);
      if (pipe.queue.front().first > Clock::now()) co_await due.async_wait(asio::use_awaitable);
      const std::vector<std::byte> bytes = std::move(pipe.queue.front().second);
      pipe.queue.pop_front();
      co_await asio::async_write(socket, asio::buffer(bytes), asio::use_awaitable);
    }
  } catch (const std::exception&) {  // the receiver has ended: so has the sender's connection
    if (pipe.passes_end) connection->close();
    co_return;
  }
  error_code ignored;
  if (pipe.passes_end) socket.shutdown(Tcp::socket::shutdown_send, ignored);
}

// The Welcome for that process: it reaches processes with lower numbers by way of the proxy.
std::vector<std::byte> LinkProxy::with_own_addresses(const std::vector<std::byte>& frame, std::uint16_t process) {
  auto welcome = std::get<Welcome>(detail::world::decode(std::span(frame).subspan(length_bytes)));
  for (std::uint16_t lower = 0; lower < process; ++lower) {
    auto& facts = welcome.processes[lower];
    const Tcp::endpoint target(asio::ip::make_address(facts.data_address), facts.data_port);
    facts.data_address = asio::ip::address_v4::loopback().to_string();
    facts.data_port = listen({.lower = lower, .higher = process, .is_data = true}, process, target);
  }
  return framed(welcome);
}

template <class F>
void LinkProxy::for_each_pipe_from(std::uint16_t process, const F& f) {
  for (const auto& connection : connections_)
    for (std::size_t side = 0; side < 2; ++side)
      if (connection->processes[side] == process) f(connection->pipes[side]);
}

template <class F>
void LinkProxy::for_each(const Link& link, const F& f) {
  for (const auto& connection : connections_)
    if (connection->link == link) f(*connection);
}

void LinkProxy::discard_from(std::uint16_t process) {
  for_each_pipe_from(process, [](Pipe& pipe) {
    pipe.state = Pipe::State::Discards;
    pipe.queue.clear();
    pipe.wake();
  });
}

void LinkProxy::hold_from(std::uint16_t process) {
  for_each_pipe_from(process, [](Pipe& pipe) { pipe.state = Pipe::State::Holds; });
}

void LinkProxy::end(const Link& link) {
  for_each(link, [](Connection& connection) {
    for (Pipe& pipe : connection.pipes) pipe.state = Pipe::State::Discards;
    connection.close();
  });
}

void LinkProxy::end_towards(const Link& link, std::uint16_t process) {
  for_each(link, [process](Connection& connection) {
    const std::size_t side = connection.processes[0] == process ? 0 : 1;
    Pipe& to_it = connection.pipes[1 - side];
    to_it.state = Pipe::State::Discards;
    error_code ignored;
    connection.sockets[side].shutdown(Tcp::socket::shutdown_send, ignored);
  });
}

void LinkProxy::silence(const Link& link) {
  for_each(link, [](Connection& connection) {
    for (Pipe& pipe : connection.pipes) {
      pipe.state = Pipe::State::Discards;
      pipe.passes_end = false;
      pipe.queue.clear();
    }
  });
}

void LinkProxy::release_from(std::uint16_t process) {
  asio::post(io_, [this, process] {
    for_each_pipe_from(process, [](Pipe& pipe) {
      if (pipe.state != Pipe::State::Holds) return;
      pipe.state = Pipe::State::Forwards;
      pipe.wake();
    });
  });
}

void LinkProxy::delay(std::uint16_t process, std::chrono::nanoseconds time) {
  asio::post(io_, [this, process, time] { delays_[process] = time; });
}

}  // namespace cox::stress
