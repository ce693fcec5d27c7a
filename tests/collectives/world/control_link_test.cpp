#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/collectives/link/control_link.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using boost::asio::ip::tcp;
using namespace cox::detail::world;
using namespace std::chrono_literals;

namespace {

/// Two ends of a connection over loopback.
struct Ends {
  boost::asio::io_context io;
  std::shared_ptr<ControlLink> near;
  std::shared_ptr<ControlLink> far;
  std::vector<Message> received;  // at the far end
  std::optional<std::string> ended;

  Ends() {
    tcp::acceptor acceptor(io, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
    tcp::socket one(io);
    one.connect(acceptor.local_endpoint());
    near = std::make_shared<ControlLink>(std::move(one));
    far = std::make_shared<ControlLink>(acceptor.accept(), 32'768);  // until it is known
  }
  ControlLink::Handlers handlers() {
    return {.received = [this](Message message) { received.push_back(std::move(message)); },
            .ended = [this](const std::string& why) { ended = why; }};
  }
  /// Runs the connection until so many messages have arrived, or it has ended.
  void run(std::size_t messages) {
    while (received.size() < messages && !ended) io.run_one_for(10s);
  }
};

// A message of more than 32 KiB.
Ask large_ask() {
  Ask ask{.number = 1, .operation = 1};
  for (std::uint64_t i = 1; i <= max_awaited; ++i) ask.awaited.push_back({.number = 2, .operation = i});
  return ask;
}

}  // namespace

TEST_CASE("A connection that is not known yet takes small messages only, and any size once it is", "[world]") {
  Ends ends;
  SECTION("known") {
    ends.far->start(ends.handlers());
    ends.far->restart(ends.handlers());
    ends.near->send(large_ask());
    ends.near->send(Close{.number = 1});
    ends.run(2);
    REQUIRE(ends.received.size() == 2);
    CHECK(std::get<Ask>(ends.received[0]) == large_ask());
    CHECK(std::holds_alternative<Close>(ends.received[1]));
  }
  SECTION("not known") {
    ends.far->start(ends.handlers());
    ends.near->send(large_ask());
    ends.run(1);
    CHECK(ends.received.empty());
    CHECK(ends.ended);
  }
  ends.near->close();
  ends.far->close();
}

TEST_CASE("Messages that are sent later are sent together by the thread of the connection, and arrive in order",
          "[world]") {
  Ends ends;
  ends.near->start({.received = [](const Message&) {}, .ended = [](const std::string&) {}});
  ends.far->start(ends.handlers());
  std::vector<Message> messages;
  for (std::uint64_t i = 1; i <= 3; ++i) messages.emplace_back(Ask{.number = 1, .operation = i});
  ends.near->send_later(messages);
  ends.near->send(Ask{.number = 1, .operation = 4});
  ends.run(4);
  REQUIRE(ends.received.size() == 4);
  for (std::uint64_t i = 1; i <= 4; ++i) CHECK(std::get<Ask>(ends.received[i - 1]).operation == i);
  ends.near->close();
  ends.far->close();
}

TEST_CASE("A connection is closed for both ends, though another process has a copy of the descriptor", "[world]") {
  Ends ends;
  CHECK((::fcntl(ends.near->socket().native_handle(), F_GETFD) & FD_CLOEXEC) != 0);
  const int copy = ::dup(ends.near->socket().native_handle());  // as a forked process has it
  ends.far->start(ends.handlers());
  ends.near->send(Close{.number = 1});
  ends.near->close();
  ends.run(2);
  CHECK(ends.received.size() == 1);
  CHECK(ends.ended);
  ::close(copy);
  ends.far->close();
}
