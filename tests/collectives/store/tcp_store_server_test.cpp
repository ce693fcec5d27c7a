#include <coxswain/collectives/store/store_message.hpp>
#include <coxswain/collectives/store/tcp_store.hpp>
#include <coxswain/collectives/store/tcp_store_server.hpp>
#include <coxswain/tests/collectives/store/plain_listener.hpp>
#include <coxswain/tests/collectives/store/store_contract.hpp>

#include <cstdio>
#include <fstream>
#include <list>
#include <optional>

using cox::FileDescriptor;
using cox::Store;
using cox::StoreError;
using cox::detail::StoreMessage;
using cox::detail::TcpStore;
using cox::detail::TcpStoreOptions;
using cox::detail::TcpStoreServer;
using cox::test::bytes_of;
using cox::test::connect_plainly;
using cox::test::far;
using cox::test::get_text;
using cox::test::kind_of;
using cox::test::receive_all;
using cox::test::send_all;

namespace {

TcpStoreOptions server_options(std::uint16_t processes) {
  return {.host = "127.0.0.1", .port = 0, .process = 0, .processes = processes, .run = "run", .restart = 0};
}

/// A client of the server that sends what it likes.
class PlainClient {
 public:
  explicit PlainClient(const TcpStoreServer& server) : socket_(connect_plainly(server.port())) {}

  void send(const StoreMessage& message) { send(message.frame()); }
  void send(std::span<const std::byte> bytes) { static_cast<void>(send_all(socket_.get(), bytes)); }
  void hello() {
    StoreMessage message;
    message.kind = StoreMessage::Kind::Hello;
    message.process = 1;
    message.text = "run";
    send(message);
    REQUIRE(receive());
  }
  /// Nothing if the server has closed the connection.
  std::optional<StoreMessage> receive() {
    StoreMessage::Length length{};
    if (!receive_all(socket_.get(), length)) return std::nullopt;
    std::vector<std::byte> bytes(StoreMessage::length_of(length));
    if (!receive_all(socket_.get(), bytes)) return std::nullopt;
    return StoreMessage::decode(bytes);
  }

 private:
  FileDescriptor socket_;
};

StoreMessage request(StoreMessage::Kind kind, std::uint32_t number, const std::string& key) {
  StoreMessage message;
  message.kind = kind;
  message.number = number;
  message.key = key;
  return message;
}

/// The local addresses of the listening sockets with that port, in hexadecimal, as /proc/net/tcp has them.
std::vector<std::string> listening_addresses(std::uint16_t port) {
  std::array<char, 8> wanted{};
  std::snprintf(wanted.data(), wanted.size(), ":%04X", port);
  std::vector<std::string> addresses;
  for (const char* const file : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(file);
    std::string number;
    std::string local;
    std::string remote;
    std::string state;
    std::string rest;
    while (lines >> number >> local >> remote >> state && std::getline(lines, rest))
      if (local.ends_with(wanted.data()) && state == "0A") addresses.push_back(local.substr(0, local.find(':')));
  }
  return addresses;
}

}  // namespace

TEST_CASE("The server of a loopback address listens on that address alone") {
  const TcpStoreServer server(server_options(2), far());
  CHECK(listening_addresses(server.port()) == std::vector<std::string>{"0100007F"});
}

TEST_CASE("A connection that breaks the protocol is closed, and the others are not affected") {
  TcpStoreServer server(server_options(2), far());
  PlainClient good(server);
  good.hello();
  good.send(request(StoreMessage::Kind::Get, 7, "late"));

  SECTION("not a message") {
    PlainClient bad(server);
    bad.send(bytes_of(std::string("GET / HTTP/1.1\r\n\r\n")));
    CHECK_FALSE(bad.receive());
  }
  SECTION("a call before the Hello") {
    PlainClient bad(server);
    bad.send(request(StoreMessage::Kind::Set, 1, "k"));
    CHECK_FALSE(bad.receive());
  }
  SECTION("two Hellos") {
    PlainClient bad(server);
    bad.hello();
    bad.send(request(StoreMessage::Kind::Hello, 1, ""));
    CHECK_FALSE(bad.receive());
  }
  SECTION("a reply") {
    PlainClient bad(server);
    bad.hello();
    bad.send(request(StoreMessage::Kind::Value, 1, "k"));
    CHECK_FALSE(bad.receive());
  }
  SECTION("a large message before the Hello") {
    PlainClient bad(server);
    bad.send(StoreMessage::Length{std::byte{0}, std::byte{0}, std::byte{1}, std::byte{0}});
    CHECK_FALSE(bad.receive());
  }
  SECTION("a message that is larger than any") {
    PlainClient bad(server);
    bad.hello();
    bad.send(StoreMessage::Length{std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff}});
    CHECK_FALSE(bad.receive());
  }
  SECTION("an end in the middle of a message") {
    PlainClient bad(server);
    bad.hello();
    const std::vector<std::byte> frame = request(StoreMessage::Kind::Set, 1, "k").frame();
    bad.send(std::span(frame).first(frame.size() / 2));
  }

  PlainClient other(server);
  other.hello();
  StoreMessage set = request(StoreMessage::Kind::Set, 1, "late");
  set.value.assign(3, std::byte{5});
  other.send(set);
  CHECK(other.receive()->kind == StoreMessage::Kind::Done);
  const auto reply = good.receive();
  REQUIRE(reply);
  CHECK(reply->number == 7);
  CHECK(reply->value == set.value);
}

TEST_CASE("A new call cancels a get that waits") {
  TcpStoreServer server(server_options(2), far());
  PlainClient client(server);
  client.hello();
  client.send(request(StoreMessage::Kind::Get, 1, "absent"));
  client.send(request(StoreMessage::Kind::Set, 2, "absent"));
  CHECK(client.receive()->number == 2);
  client.send(request(StoreMessage::Kind::Get, 3, "absent"));
  CHECK(client.receive()->number == 3);
}

TEST_CASE("Connections without a Hello do not keep a process out") {
  TcpStoreServer server(server_options(2), far());
  std::list<PlainClient> strangers;
  for (int i = 0; i < 200; ++i) strangers.emplace_back(server);
  PlainClient client(server);
  client.hello();
  CHECK_FALSE(strangers.front().receive());  // the oldest had to leave
}

TEST_CASE("The store has a limit, and a value that is replaced does not count") {
  TcpStoreServer server(server_options(1), far());
  TcpStoreOptions options = server_options(1);
  options.port = server.port();
  PlainClient client(server);
  StoreMessage hello = request(StoreMessage::Kind::Hello, 0, "");
  hello.text = "run";
  client.send(hello);
  REQUIRE(client.receive());
  StoreMessage set = request(StoreMessage::Kind::Set, 1, "k");
  set.value.resize(Store::max_value);
  for (int i = 0; i < 300; ++i) {
    client.send(set);
    REQUIRE(client.receive()->kind == StoreMessage::Kind::Done);
  }
  int stored = 0;
  StoreMessage::Kind kind = StoreMessage::Kind::Done;
  for (; stored < 300 && kind == StoreMessage::Kind::Done; ++stored) {
    set.key = "k" + std::to_string(stored);
    client.send(set);
    const auto reply = client.receive();
    REQUIRE(reply);
    kind = reply->kind;
    if (kind == StoreMessage::Kind::Failed)
      CHECK(reply->amount == static_cast<std::int64_t>(StoreError::Kind::TooLarge));
  }
  CHECK(kind == StoreMessage::Kind::Failed);
  CHECK(stored == 255);
}
