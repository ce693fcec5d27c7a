#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/link/send_queue.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <semaphore>
#include <span>
#include <thread>
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
  SendQueue queue(pair.ends[0], {.wait_writable = [] { FAIL("the socket takes all"); },
                                 .flush_later = [] { FAIL("nothing was sent a moment ago"); }});
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
  SendQueue queue(pair.ends[0], {.wait_writable = [&] { ++waits; }, .flush_later = [] {}});
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
  SendQueue queue(pair.ends[0], {.wait_writable = [] {}, .flush_later = [] {}});
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
  SendQueue queue(pair.ends[0], {.wait_writable = [] {}, .flush_later = [] {}});
  const std::vector<std::byte> large = bytes_of(1'000'000, 7);
  CHECK(queue.push({.head = {}, .data = {large}, .key = 3}));
  queue.close();
  const auto dropped = queue.take_unsent();
  REQUIRE(dropped.size() == 1);
  CHECK(dropped.front().key == 3);
  CHECK_FALSE(queue.push({.head = bytes_of(1, 1)}));
  queue.close();
  CHECK(queue.take_unsent().empty());
}

TEST_CASE("Small items in quick succession are sent together by flush()") {
  const Pair pair;
  int later = 0;
  SendQueue queue(pair.ends[0],
                  {.wait_writable = [] { FAIL("the socket takes all"); }, .flush_later = [&] { ++later; }});
  const std::vector<std::byte> part = bytes_of(2, 5);
  int told = 0;
  const auto push = [&](unsigned value, std::uint64_t key) {
    CHECK(queue.push({.head = bytes_of(1, value), .data = {part}, .key = key, .sent = [&] { ++told; }}));
  };
  // How soon a push follows the one before depends on the machine: until one is held back.
  std::size_t sent = 0;
  while (later == 0) {
    push(1, 1);
    ++sent;
  }
  CHECK(static_cast<std::size_t>(told) == sent - 1);
  push(2, 2);
  push(3, 3);
  CHECK(later == 1);
  queue.withdraw(2);
  CHECK(pair.take().size() == 3 * (sent - 1));
  queue.flush();
  CHECK(static_cast<std::size_t>(told) == sent + 1);
  CHECK(pair.take() == std::vector{std::byte{1}, std::byte{5}, std::byte{5}, std::byte{3}, std::byte{5}, std::byte{5}});
}

TEST_CASE("A small item that is to be sent later is sent by flush(), after those before it and before those after it") {
  const Pair pair;
  int later = 0;
  SendQueue queue(pair.ends[0],
                  {.wait_writable = [] { FAIL("the socket takes all"); }, .flush_later = [&] { ++later; }});
  CHECK(queue.push({.head = bytes_of(1, 1)}));
  CHECK(queue.push({.head = bytes_of(1, 2)}, SendQueue::Small::Later));
  CHECK(later == 1);
  CHECK(pair.take() == bytes_of(1, 1));
  CHECK(queue.push({.head = bytes_of(1, 3)}));
  CHECK(pair.take().empty());
  queue.flush();
  CHECK(pair.take() == std::vector{std::byte{2}, std::byte{3}});
}

TEST_CASE("Items of several threads arrive whole, those of each thread in their order") {
  constexpr std::size_t threads = 3;
  constexpr std::size_t items = 3000;
  const Pair pair;
  std::counting_semaphore<> flushes{0};
  SendQueue queue(pair.ends[0],
                  {.wait_writable = [&] { flushes.release(); }, .flush_later = [&] { flushes.release(); }});
  std::atomic<std::size_t> told{0};
  std::atomic<bool> ends{false};
  std::thread flusher([&] {
    for (flushes.acquire(); !ends; flushes.acquire()) {
      pollfd socket{.fd = pair.ends[0], .events = POLLOUT, .revents = 0};
      static_cast<void>(::poll(&socket, 1, -1));
      queue.flush();
    }
  });
  // An item: its thread, its size, and so many bytes that tell its number.
  const auto size_of = [](std::size_t item) -> std::size_t { return item % 97 == 0 ? 20'000 : item % 7; };
  std::vector<std::thread> writers;
  for (std::size_t thread = 0; thread < threads; ++thread)
    writers.emplace_back([&, thread] {
      std::vector<std::vector<std::byte>> parts(items);
      for (std::size_t item = 0; item < items; ++item) {
        parts[item] = bytes_of(size_of(item), static_cast<unsigned>(item % 251));
        const std::array head{static_cast<std::byte>(thread), static_cast<std::byte>(item % 256),
                              static_cast<std::byte>(item / 256)};
        static_cast<void>(
            queue.push({.head = {head.begin(), head.end()}, .data = {parts[item]}, .key = 0, .sent = [&] { ++told; }}));
      }
      // The parts are read until they are sent.
      while (told < threads * items) std::this_thread::yield();
    });
  std::vector<std::size_t> next(threads, 0);
  std::vector<std::byte> got;
  std::size_t at = 0;
  const auto take_at_least = [&](std::size_t bytes) {
    while (got.size() - at < bytes) {
      std::array<std::byte, 65536> some{};
      const ssize_t more = ::recv(pair.ends[1], some.data(), some.size(), 0);
      REQUIRE(more > 0);
      got.erase(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(at));
      at = 0;
      got.insert(got.end(), some.begin(), some.begin() + more);
    }
  };
  bool is_right = true;
  for (std::size_t count = 0; count < threads * items; ++count) {
    take_at_least(3);
    const auto thread = std::to_integer<std::size_t>(got[at]);
    REQUIRE(thread < threads);
    const std::size_t item = next[thread]++;
    is_right = is_right && std::to_integer<std::size_t>(got[at + 1]) == item % 256 &&
               std::to_integer<std::size_t>(got[at + 2]) == item / 256;
    at += 3;
    take_at_least(size_of(item));
    for (std::size_t i = 0; i < size_of(item); ++i)
      is_right = is_right && std::to_integer<std::size_t>(got[at + i]) == item % 251;
    at += size_of(item);
  }
  CHECK(is_right);
  for (std::thread& writer : writers) writer.join();
  ends = true;
  flushes.release();
  flusher.join();
}

TEST_CASE("A connection that the other end has closed takes nothing more") {
  Pair pair;
  SendQueue queue(pair.ends[0], {.wait_writable = [] {}, .flush_later = [] {}});
  ::close(pair.ends[1]);
  pair.ends[1] = -1;
  static_cast<void>(queue.push({.head = bytes_of(1, 1)}));
  CHECK_FALSE(queue.push({.head = bytes_of(1, 1)}));
}
