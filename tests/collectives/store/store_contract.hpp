#pragma once

#include <coxswain/collectives/store/store.hpp>
#include <coxswain/collectives/store/store_error.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace cox::test {

/// A deadline that a test does not reach unless it fails.
inline Store::Deadline far() { return std::chrono::steady_clock::now() + std::chrono::seconds(60); }
/// A deadline that is soon reached.
inline Store::Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::milliseconds(60); }

/// A deadline that is reached, but late enough for another thread to have done its part.
inline Store::Deadline later() { return std::chrono::steady_clock::now() + std::chrono::milliseconds(700); }

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::string get_text(Store& store, std::string_view key) { return text_of(store.get(key, far())); }

/// Runs `f(i)` on a thread for each i below `count`, and returns what they return. Rethrows what they throw.
template <class F>
auto on_threads(std::size_t count, F f) {
  std::vector<std::future<decltype(f(std::size_t{0}))>> results;
  for (std::size_t i = 0; i < count; ++i) results.push_back(std::async(std::launch::async, f, i));
  if constexpr (std::is_void_v<decltype(f(std::size_t{0}))>) {
    for (auto& result : results) result.get();
  } else {
    std::vector<decltype(f(std::size_t{0}))> values;
    for (auto& result : results) values.push_back(result.get());
    return values;
  }
}

/// Opens the store of one process of a world with two.
using OpenStore = std::function<std::unique_ptr<Store>(std::uint16_t process)>;

struct TwoStores {
  std::unique_ptr<Store> zero;
  std::unique_ptr<Store> one;

  explicit TwoStores(const OpenStore& open) {
    auto other = std::async(std::launch::async, [&] { return open(1); });
    zero = open(0);
    one = other.get();
  }
};

/// What each kind of store does.
inline void check_store_contract(const OpenStore& open) {
  TwoStores stores(open);
  Store& zero = *stores.zero;
  Store& one = *stores.one;

  INFO("a value is seen by the other process, bytes of any kind included");
  const std::string any("\0/%= ~\xff\n", 8);
  zero.set("leader", bytes_of(any), far());
  CHECK(get_text(one, "leader") == any);
  one.set("leader", bytes_of("second"), far());
  CHECK(get_text(zero, "leader") == "second");

  INFO("keys are any bytes, and no two of them are the same value");
  const std::vector<std::string> keys{"a",
                                      "a/b",
                                      "a+b",
                                      "a%2Fb",
                                      "a/",
                                      ".",
                                      "..",
                                      "A",
                                      std::string(256, 'k'),
                                      std::string(256, '/'),
                                      std::string(255, 'k')};
  for (const std::string& key : keys) zero.set(key, bytes_of("of " + key), far());
  for (const std::string& key : keys) CHECK(get_text(one, key) == "of " + key);

  INFO("a value may be empty, and may have 1 MiB");
  zero.set("empty", {}, far());
  CHECK(get_text(one, "empty").empty());
  const std::string longest(Store::max_value, 'x');
  zero.set("long", bytes_of(longest), far());
  CHECK(get_text(one, "long") == longest);

  INFO("a get waits for the value");
  auto waiting = std::async(std::launch::async, [&] { return get_text(one, "late"); });
  zero.set("late", bytes_of("here"), far());
  CHECK(waiting.get() == "here");

  INFO("a get whose deadline passes names its key, and the store stays usable");
  const std::string text = message_of([&] { (void)one.get("absent", soon()); });
  CHECK(mentions(text, {"absent", "deadline"}));
  CHECK(kind_of<StoreError>([&] { (void)one.get("absent", soon()); }) == StoreError::Kind::Timeout);
  zero.set("absent", bytes_of("now"), far());
  CHECK(get_text(one, "absent") == "now");
  CHECK(get_text(one, "leader") == "second");

  INFO("add counts from 0, and a get sees the sum as text");
  CHECK(zero.add("count", 5, far()) == 5);
  CHECK(one.add("count", -7, far()) == -2);
  CHECK(get_text(zero, "count") == "-2");

  INFO("adds of both processes are all counted");
  on_threads(2, [&](std::size_t i) {
    for (int n = 0; n < 50; ++n) (i == 0 ? zero : one).add("sum", 1, far());
  });
  CHECK(zero.add("sum", 0, far()) == 100);

  INFO("compare_set replaces what is expected alone");
  CHECK(text_of(zero.compare_set("owner", bytes_of("x"), bytes_of("zero"), far())).empty());
  CHECK(text_of(zero.compare_set("owner", bytes_of("x"), bytes_of("x"), far())).empty());
  CHECK(text_of(zero.compare_set("owner", {}, bytes_of("zero"), far())) == "zero");
  CHECK(text_of(one.compare_set("owner", {}, bytes_of("one"), far())) == "zero");
  CHECK(text_of(one.compare_set("owner", bytes_of("zero"), bytes_of("one"), far())) == "one");
  CHECK(get_text(zero, "owner") == "one");

  INFO("one of two processes that compare_set at the same time succeeds");
  for (int round = 0; round < 20; ++round) {
    const std::string key = "race" + std::to_string(round);
    const auto won = on_threads(2, [&](std::size_t i) {
      const std::string own = "process " + std::to_string(i);
      return text_of((i == 0 ? zero : one).compare_set(key, {}, bytes_of(own), far()));
    });
    CHECK(won[0] == won[1]);
  }

  INFO("what is too long is refused before anything is sent");
  const std::string too_long(Store::max_value + 1, 'x');
  CHECK(kind_of<StoreError>([&] { zero.set("k", bytes_of(too_long), far()); }) == StoreError::Kind::TooLarge);
  CHECK(kind_of<StoreError>([&] { (void)zero.compare_set("k", bytes_of(too_long), {}, far()); }) ==
        StoreError::Kind::TooLarge);
  CHECK(kind_of<StoreError>([&] { (void)zero.get(std::string(257, 'k'), soon()); }) == StoreError::Kind::TooLarge);

  INFO("add to what is not a number is an error");
  one.set("word", bytes_of("x12"), far());  // TCPStore takes the digits of "12x" for a number
  CHECK(kind_of<StoreError>([&] { (void)one.add("word", 1, far()); }) == StoreError::Kind::Protocol);

  INFO("after close() all calls are refused");
  auto closing = std::async(std::launch::async, [&] { one.close(far()); });
  if (kind_of<StoreError>([&] { zero.close(far()); })) FAIL("close of process 0");
  closing.get();
  CHECK(kind_of<StoreError>([&] { zero.set("k", {}, far()); }) == StoreError::Kind::Unreachable);
  CHECK(kind_of<StoreError>([&] { (void)one.get("leader", far()); }) == StoreError::Kind::Unreachable);
  one.close(far());
}

}  // namespace cox::test
