#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/world/send_queue.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

using cox::detail::world::SendQueue;

namespace {

/// Two connected sockets that take little at a time.
struct Pair {
  std::array<int, 2> ends{-1, -1};
  Pair() {
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
    const int bytes = 4096;
    static_cast<void>(::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes));
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    for (const int end : ends) ::close(end);
  }
  /// All that has arrived.
  std::vector<std::byte> take() const {
    std::vector<std::byte> all;
    std::array<std::byte, 65536> some{};
    for (ssize_t got = 0; (got = ::recv(ends[1], some.data(), some.size(), MSG_DONTWAIT)) > 0;)
      all.insert(all.end(), some.begin(), some.begin() + got);
    return all;
  }
};

std::vector<std::byte> bytes_of(std::size_t count, unsigned value) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

}  // namespace

TEST_CASE("What is pushed is sent at once, its parts in order, and told when it is sent") {
  const Pair pair;
  SendQueue queue(pair.ends[0], [] { FAIL("the socket takes all"); });
  const std::vector<std::byte> first = bytes_of(3, 2);
  const std::vector<std::byte> second = bytes_of(2, 3);
  int told = 0;
  CHECK(queue.push({.head = bytes_of(1, 1), .data = {first, {}, second}, .sent = [&] { ++told; }}));
  CHECK(told == 1);
  const std::vector<std::byte> expected{std::byte{1}, std::byte{2}, std::byte{2},
                                        std::byte{2}, std::byte{3}, std::byte{3}};
  CHECK(pair.take() == expected);
}

TEST_CASE("What the socket does not take is sent later, in order") {
  const Pair pair;
  int waits = 0;
  SendQueue queue(pair.ends[0], [&] { ++waits; });
  const std::vector<std::byte> large = bytes_of(1'000'000, 7);
  bool told = false;
  CHECK(queue.push({.head = {}, .data = {large}, .sent = [&] { told = true; }}));
  CHECK(waits == 1);
  CHECK(queue.push({.head = bytes_of(1, 8)}));
  CHECK(waits == 1);  // not again until flush()
  CHECK_FALSE(told);
  std::vector<std::byte> got;
  while (got.size() < large.size() + 1) {
    const std::vector<std::byte> more = pair.take();
    got.insert(got.end(), more.begin(), more.end());
    queue.flush();
  }
  CHECK(told);
  CHECK(std::vector(got.begin(), got.end() - 1) == large);
  CHECK(got.back() == std::byte{8});
}

TEST_CASE("The memory of what is withdrawn is not read any more, and a part that was sent is completed") {
  const Pair pair;
  SendQueue queue(pair.ends[0], [] {});
  std::vector<std::byte> large = bytes_of(1'000'000, 7);
  bool told = false;
  CHECK(queue.push({.head = {}, .data = {large}, .key = 1, .sent = [&] { told = true; }}));
  CHECK(queue.push({.head = bytes_of(5, 9), .data = {}, .key = 1}));
  CHECK(queue.push({.head = bytes_of(1, 8), .data = {}, .key = 2}));
  queue.withdraw(1);
  std::ranges::fill(large, std::byte{0});
  std::vector<std::byte> got;
  while (got.size() < large.size() + 1) {
    const std::vector<std::byte> more = pair.take();
    got.insert(got.end(), more.begin(), more.end());
    queue.flush();
  }
  CHECK_FALSE(told);
  CHECK(std::ranges::count(got, std::byte{7}) == 1'000'000);
  CHECK(got.back() == std::byte{8});
  CHECK(got.size() == large.size() + 1);  // the item that was not begun is not sent
}

TEST_CASE("A closed queue takes nothing, and returns what was not sent") {
  const Pair pair;
  SendQueue queue(pair.ends[0], [] {});
  const std::vector<std::byte> large = bytes_of(1'000'000, 7);
  CHECK(queue.push({.head = {}, .data = {large}, .key = 3}));
  const auto dropped = queue.close();
  REQUIRE(dropped.size() == 1);
  CHECK(dropped.front().key == 3);
  CHECK_FALSE(queue.push({.head = bytes_of(1, 1)}));
  CHECK(queue.close().empty());
}

TEST_CASE("A connection that the other end has closed takes nothing more") {
  Pair pair;
  SendQueue queue(pair.ends[0], [] {});
  ::close(pair.ends[1]);
  pair.ends[1] = -1;
  static_cast<void>(queue.push({.head = bytes_of(1, 1)}));
  CHECK_FALSE(queue.push({.head = bytes_of(1, 1)}));
}
