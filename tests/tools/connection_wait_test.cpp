#include <coxswain/runtime/kept/keeper_message.hpp>
#include <coxswain/runtime/socket/file_descriptor.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tools/cox/nodes/connection_wait.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <array>
#include <chrono>
#include <exception>
#include <optional>
#include <source_location>
#include <thread>

using cox::FileDescriptor;
using cox::receive_message;
using cox::tools::ConnectionWait;

namespace {

constexpr std::source_location here = std::source_location::current();

struct Pair {
  Pair() {
    std::array<int, 2> ends{};
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
    one.reset(ends[0]);
    other.reset(ends[1]);
  }
  FileDescriptor one;
  FileDescriptor other;
};

}  // namespace

TEST_CASE("Sockets that are watched stay blocking, so that many messages can be sent to a slow reader") {
  boost::asio::io_context io;
  ConnectionWait connections(io);
  const Pair pair;
  const int flags = fcntl(pair.one.get(), F_GETFL);
  send_message(pair.other.get(), {}, cox::KeeperWait::Yes, here);
  connections.wait({pair.one.get(), -1}, std::nullopt);  // returns, since it is readable
  CHECK(fcntl(pair.one.get(), F_GETFL) == flags);
  constexpr int messages = 1000;
  std::exception_ptr failed;
  std::thread sender([&] {
    try {
      for (int i = 0; i < messages; ++i) send_message(pair.one.get(), {}, cox::KeeperWait::Yes, here);
    } catch (...) {
      failed = std::current_exception();
    }
    shutdown(pair.one.get(), SHUT_WR);
  });
  int received = 0;
  while (receive_message(pair.other.get(), here)) ++received;
  sender.join();
  CHECK(received == messages);
  CHECK_FALSE(failed);
}

TEST_CASE("Waiting ends when the connections have had something to do, or the time has elapsed") {
  boost::asio::io_context io;
  ConnectionWait connections(io);
  const Pair pair;
  boost::asio::steady_timer timer(io, std::chrono::nanoseconds(0));
  bool called = false;
  timer.async_wait([&](const boost::system::error_code&) { called = true; });
  connections.wait({pair.one.get()}, std::nullopt);
  CHECK(called);
  connections.wait({pair.one.get()}, std::chrono::nanoseconds(0));
  connections.wait({}, std::chrono::nanoseconds(-1));
}

TEST_CASE("If a descriptor cannot be watched, those before it are not closed") {
  boost::asio::io_context io;
  ConnectionWait connections(io);
  const Pair pair;
  FileDescriptor closed(dup(pair.one.get()));
  const int number = closed.get();
  closed.reset();
  CHECK_THROWS(connections.wait({pair.one.get(), number}, std::nullopt));
  CHECK(fcntl(pair.one.get(), F_GETFD) >= 0);
  send_message(pair.other.get(), {}, cox::KeeperWait::Yes, here);
  connections.wait({pair.one.get()}, std::nullopt);
}
