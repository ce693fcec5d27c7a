#include <coxswain/collectives/store/deadline_socket.hpp>
#include <coxswain/tests/collectives/store/plain_listener.hpp>
#include <coxswain/tests/collectives/store/store_contract.hpp>

#include <array>
#include <future>
#include <optional>

using cox::FileDescriptor;
using cox::StoreError;
using cox::detail::DeadlineSocket;
using cox::detail::host_and_port;
using cox::test::bytes_of;
using cox::test::connect_plainly;
using cox::test::far;
using cox::test::free_port;
using cox::test::kind_of;
using cox::test::mentions;
using cox::test::message_of;
using cox::test::PlainListener;
using cox::test::receive_all;
using cox::test::send_all;
using cox::test::soon;

namespace {

struct Pair {
  PlainListener listener;
  DeadlineSocket socket{"127.0.0.1", listener.port(), far()};
  FileDescriptor other = listener.accept();
};

}  // namespace

TEST_CASE("A connection is tried until the listener is there") {
  const std::uint16_t port = free_port();
  auto connected = std::async(std::launch::async, [&] { return DeadlineSocket("127.0.0.1", port, far()).peer(); });
  const PlainListener listener(port);
  CHECK(listener.accept().is_open());
  CHECK(connected.get() == "127.0.0.1:" + std::to_string(port));
}

TEST_CASE("Without a listener the error comes at the deadline and names the address") {
  // A port of the range from which the system takes those of outgoing connections: a try may reach itself.
  const std::uint16_t port = free_port();
  const auto connect = [&] { DeadlineSocket("127.0.0.1", port, soon()); };
  CHECK(kind_of<StoreError>(connect) == StoreError::Kind::Unreachable);
  CHECK(mentions(message_of(connect), {"127.0.0.1:" + std::to_string(port), "refused"}));
}

TEST_CASE("Bytes arrive as they were sent, and more of them than the system's buffers hold") {
  Pair pair;
  const std::string sent(16 << 20, 'x');
  auto sending = std::async(std::launch::async, [&] { pair.socket.send(bytes_of(sent), far()); });
  std::vector<std::byte> received(sent.size());
  CHECK(receive_all(pair.other.get(), received));
  sending.get();
  CHECK(cox::test::text_of(received) == sent);
}

TEST_CASE("A wait that reaches its deadline leaves the connection usable") {
  Pair pair;
  CHECK_FALSE(pair.socket.wait_readable(soon()));
  REQUIRE(send_all(pair.other.get(), bytes_of("abc")));
  CHECK(pair.socket.wait_readable(far()));
  std::array<std::byte, 3> bytes{};
  pair.socket.receive(bytes, far());
  CHECK(cox::test::text_of(bytes) == "abc");
}

TEST_CASE("A receive that reaches its deadline closes the connection, for half of a message cannot be given back") {
  Pair pair;
  REQUIRE(send_all(pair.other.get(), bytes_of("ab")));
  std::array<std::byte, 3> bytes{};
  CHECK(kind_of<StoreError>([&] { pair.socket.receive(bytes, soon()); }) == StoreError::Kind::Unreachable);
  CHECK(mentions(message_of([&] { (void)pair.socket.wait_readable(far()); }), {"closed"}));
}

TEST_CASE("A send to an end that does not read ends at the deadline") {
  Pair pair;
  const std::string sent(64 << 20, 'x');
  CHECK(kind_of<StoreError>([&] { pair.socket.send(bytes_of(sent), soon()); }) == StoreError::Kind::Unreachable);
}

TEST_CASE("The end of the other process is noticed") {
  Pair pair;
  pair.other.reset();
  CHECK(pair.socket.wait_readable(far()));
  std::array<std::byte, 1> bytes{};
  const auto receive = [&] { pair.socket.receive(bytes, far()); };
  CHECK(mentions(message_of(receive), {"127.0.0.1:" + std::to_string(pair.listener.port()), "closed"}));
}

TEST_CASE("An IPv6 address has brackets before its port") {
  CHECK(host_and_port("10.0.0.1", 7) == "10.0.0.1:7");
  CHECK(host_and_port("::1", 7) == "[::1]:7");
}
