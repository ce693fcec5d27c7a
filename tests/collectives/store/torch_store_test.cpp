#include <coxswain/collectives/store/torch_store.hpp>
#include <coxswain/tests/collectives/store/store_contract.hpp>
#include <coxswain/tests/collectives/store/torch_server.hpp>

#include <unistd.h>
#include <array>
#include <cctype>
#include <cstdio>
#include <memory>
#include <optional>

using cox::Store;
using cox::StoreError;
using cox::detail::TorchStore;
using cox::detail::TorchStoreOptions;
using cox::test::bytes_of;
using cox::test::far;
using cox::test::get_text;
using cox::test::kind_of;
using cox::test::later;
using cox::test::mentions;
using cox::test::message_of;
using cox::test::PlainListener;
using cox::test::soon;
using cox::test::text_of;
using cox::test::TorchServer;

namespace {

TorchStoreOptions torch_options(std::uint16_t port, const std::string& run = "run") {
  return {.host = "127.0.0.1", .port = port, .run = run, .restart = 0};
}

/// The bytes of hexadecimal digits; other letters are left out.
std::vector<std::byte> from_hex(std::string_view text) {
  std::string digits;
  for (const char letter : text)
    if (std::isxdigit(static_cast<unsigned char>(letter)) != 0) digits += letter;
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

/// One line of a conversation: what the client must send, and what the server replies to it.
struct Line {
  std::string_view sent;
  std::string_view reply;
};

/// Plays the server of a recorded conversation. Returns the number of the first line, from 0, where the client sent
/// something else; -1 if there is none.
int play(const PlainListener& listener, const std::vector<Line>& lines) {
  const cox::FileDescriptor client = listener.accept();
  // The ping has a number of the client's choice.
  std::vector<std::byte> ping(10);
  if (!cox::test::receive_all(client.get(), ping) ||
      !std::ranges::equal(std::span(ping).first(6), from_hex("00 cef7853c 0d")))
    return 0;
  const std::vector<std::byte> nonce(ping.begin() + 6, ping.end());
  cox::test::send_all(client.get(), nonce);
  int number = 1;
  for (const Line& line : lines) {
    const std::vector<std::byte> expected = from_hex(line.sent);
    std::vector<std::byte> sent(expected.size());
    if (!cox::test::receive_all(client.get(), sent) || sent != expected) return number;
    cox::test::send_all(client.get(), line.reply == "nonce" ? nonce : from_hex(line.reply));
    ++number;
  }
  return -1;
}

}  // namespace

TEST_CASE("A store of torchrun does what a store does") {
  const TorchServer server;
  cox::test::check_store_contract(
      [&](std::uint16_t) { return std::make_unique<TorchStore>(torch_options(server.port()), far()); });
}

// As recorded between a client and both kinds of server of PyTorch 2.5.1, but for the longer keys.
TEST_CASE("The client sends what PyTorch's own client sends") {
  const PlainListener listener;
  std::array<char, 32> ping{};  // after a set: its number is that of the process
  const auto pid = static_cast<std::uint32_t>(getpid());
  std::snprintf(ping.data(), ping.size(), "0d %02x%02x%02x%02x", pid & 0xFFU, pid >> 8U & 0xFFU, pid >> 16U & 0xFFU,
                pid >> 24U);
  // The key "k" of run "r" and restart 0 is "/cox/r/0/k".
  const std::vector<Line> lines{
      {"01 0a00000000000000 2f636f782f722f302f6b 0200000000000000 6162", ""},
      {ping.data(), "nonce"},
      {"06 0100000000000000 0a00000000000000 2f636f782f722f302f6b", "00"},
      {"03 0a00000000000000 2f636f782f722f302f6b", "0200000000000000 6162"},
      {"04 0a00000000000000 2f636f782f722f302f6e 0500000000000000", "0500000000000000"},
      {"05 0100000000000000 0a00000000000000 2f636f782f722f302f6b", "00"},
      {"02 0a00000000000000 2f636f782f722f302f6b 0200000000000000 6162 0100000000000000 63", "0100000000000000 63"},
      {"05 0100000000000000 0f00000000000000 2f636f782f722f302f616273656e74", "01"},
      {"06 0100000000000000 0f00000000000000 2f636f782f722f302f616273656e74", ""},
      {"0c", "01"},
  };
  auto server = std::async(std::launch::async, [&] { return play(listener, lines); });
  {
    TorchStore store(torch_options(listener.port(), "r"), far());
    store.set("k", bytes_of("ab"), far());
    CHECK(get_text(store, "k") == "ab");
    CHECK(store.add("n", 5, far()) == 5);
    CHECK(text_of(store.compare_set("k", bytes_of("ab"), bytes_of("c"), far())) == "c");
    CHECK(store.compare_set("absent", bytes_of("x"), bytes_of("y"), far()).empty());
    CHECK(kind_of<StoreError>([&] { (void)store.get("absent", soon()); }) == StoreError::Kind::Timeout);
  }
  CHECK(server.get() == -1);
}

TEST_CASE("Two runs and two restarts share a store of torchrun without seeing each other") {
  TorchServer server;
  TorchStore one(torch_options(server.port(), "one"), far());
  TorchStore other(torch_options(server.port(), "other"), far());
  TorchStoreOptions later = torch_options(server.port(), "one");
  later.restart = 1;
  TorchStore again(later, far());
  one.set("leader", bytes_of("of one"), far());
  CHECK(kind_of<StoreError>([&] { (void)other.get("leader", soon()); }) == StoreError::Kind::Timeout);
  CHECK(kind_of<StoreError>([&] { (void)again.get("leader", soon()); }) == StoreError::Kind::Timeout);
  other.set("leader", bytes_of("of the other"), far());
  CHECK(get_text(one, "leader") == "of one");
  server.stop();
  CHECK(server.keys() == std::set<std::string>{"/cox/one/0/leader", "/cox/other/0/leader"});
}

TEST_CASE("A value that is set while the wait is cancelled is returned") {
  const TorchServer server({.answers_wait_at_cancel = true});
  TorchStore store(torch_options(server.port()), far());
  CHECK(text_of(store.get("k", soon())) == "just in time");
  CHECK(store.add("n", 1, far()) == 1);  // the connection is in step
}

TEST_CASE("The end of torchrun's store is noticed") {
  TorchServer server;
  TorchStore store(torch_options(server.port()), far());
  auto waiting =
      std::async(std::launch::async, [&] { return kind_of<StoreError>([&] { (void)store.get("k", far()); }); });
  server.stop();
  CHECK(waiting.get() == StoreError::Kind::Unreachable);
  CHECK(kind_of<StoreError>([&] { TorchStore(torch_options(server.port()), soon()); }) ==
        StoreError::Kind::Unreachable);
}

TEST_CASE("What is no TCPStore of PyTorch 2.3 or newer is reported as that") {
  SECTION("it has no ping") {
    const TorchServer server({.has_ping = false});
    const auto connect = [&] { TorchStore(torch_options(server.port()), far()); };
    CHECK(mentions(message_of(connect), {"PyTorch 2.3", "127.0.0.1:" + std::to_string(server.port())}));
  }
  SECTION("it replies with another number") {
    const TorchServer server({.ping_reply = 0x0A0D0A0DU});
    CHECK(kind_of<StoreError>([&] { TorchStore(torch_options(server.port()), far()); }) == StoreError::Kind::Protocol);
  }
  SECTION("it sends nothing") {
    const TorchServer server({.answers = false});
    CHECK(kind_of<StoreError>([&] { TorchStore(torch_options(server.port()), later()); }) == StoreError::Kind::Timeout);
  }
}
