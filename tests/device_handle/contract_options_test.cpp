// Deadline, stop_token, label and call site. One suite, both handles, except where a caller must leave a queue.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <boost/asio/use_future.hpp>

#include <source_location>

using namespace contract;

namespace {

using Clock = std::chrono::steady_clock;

template <class F>
std::string message_of(F&& f) {
  try {
    std::forward<F>(f)();
  } catch (const cox::CallError& error) {
    return error.what();
  }
  return "no error";
}

template <class Handle, class... Arguments>
concept Submits = requires(const Handle& handle, Arguments... arguments) { handle.submit(arguments...); };
template <class Handle, class... Arguments>
concept SubmitsBlocking = requires(const Handle& handle, Arguments... a) { handle.submit_blocking(a...); };
template <class Handle, class... Arguments>
concept Excludes = requires(const Handle& handle, Arguments... arguments) { handle.exclusive(arguments...); };

}  // namespace

TEMPLATE_TEST_CASE("A call takes a call site, or options as an object or as a braced list", "[contract]", Threaded,
                   Inline) {
  using Handle = typename TestType::template Handle<Alpha>;
  const TestDevice device;
  const auto handle = Handle::get(device);
  int ran = 0;
  const auto count = [&ran](Alpha&) { return ++ran; };
  const cox::CallOptions options{.label = "count"};
  const auto site = std::source_location::current();
  const auto asio_future = boost::asio::use_future;
  handle.submit(count);
  handle.submit([&ran](Alpha&) { ++ran; });
  handle.submit(count, site);
  handle.submit(count, options);
  handle.submit(count, {.deadline = Clock::now() + 1h});
  CHECK(handle.submit_blocking(count) == 6);
  CHECK(handle.submit_blocking(count, site) == 7);
  CHECK(handle.submit_blocking(count, options) == 8);
  CHECK(handle.submit_blocking(count, {.label = "count"}) == 9);
  CHECK(handle.exclusive([&] { return ++ran; }) == 10);
  CHECK(handle.exclusive([&] { return ++ran; }, site) == 11);
  CHECK(handle.exclusive([&] { return ++ran; }, options) == 12);
  CHECK(handle.exclusive([&] { return ++ran; }, {.label = "count"}) == 13);
  CHECK(handle.submit_async(count, asio_future).get() == 14);
  CHECK(handle.submit_async(count, boost::asio::use_future).get() == 15);
  CHECK(handle.submit_async(count, options, asio_future).get() == 16);
  CHECK(handle.submit_async(count, {}, boost::asio::use_future).get() == 17);
  CHECK(handle.submit_async(count, {.label = "count"}, boost::asio::use_future).get() == 18);
  handle.submit_in_place([&] { return count; });
  handle.submit_in_place([&] { return count; }, site);
  CHECK(handle.submit_blocking([&ran](Alpha&) { return ran; }) == 20);
  // A closure of another service and an argument that is neither a site nor options are not calls.
  const auto of_beta = [](Beta&) {};
  const auto without_service = [] {};
  static_assert(Submits<Handle, decltype(count), cox::CallOptions>);
  static_assert(!Submits<Handle, decltype(of_beta)>);
  static_assert(!Submits<Handle, decltype(without_service)>);
  static_assert(!Submits<Handle, decltype(count), int>);
  static_assert(!Submits<Handle, decltype(count), cox::CallOptions, cox::CallOptions>);
  static_assert(!SubmitsBlocking<Handle, decltype(of_beta), cox::CallOptions>);
  static_assert(!SubmitsBlocking<Handle, decltype(count), int>);
  static_assert(!Excludes<Handle, decltype(count)>);
  static_assert(!Excludes<Handle, decltype(without_service), int>);
}

TEMPLATE_TEST_CASE("A call whose deadline has passed does not run; a blocking caller gets expired", "[contract]",
                   Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  bool ran = false;
  const Fate fate;
  CHECK(kind_of([&] {
          handle.submit_blocking([&, ticket = fate.ticket()](Alpha&) { ran = true; }, before(Clock::now() - 1s));
        }) == Kind::Expired);
  handle.submit([&, ticket = fate.ticket()](Alpha&) { ran = true; }, before(Clock::now() - 1s));
  const auto statistics = at_rest(handle);
  CHECK(statistics.expired == 2);
  CHECK(conserved(statistics));
  CHECK(fate.deaths() == 2);
  CHECK_FALSE(ran);
}

TEMPLATE_TEST_CASE("A call whose stop was requested does not run; a blocking caller gets cancelled", "[contract]",
                   Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  std::stop_source stop;
  stop.request_stop();
  bool ran = false;
  CHECK(kind_of([&] { handle.submit_blocking([&](Alpha&) { ran = true; }, unless(stop.get_token())); }) ==
        Kind::Cancelled);
  handle.submit([&](Alpha&) { ran = true; }, unless(stop.get_token()));
  const auto statistics = at_rest(handle);
  CHECK(statistics.cancelled == 2);
  CHECK(conserved(statistics));
  CHECK_FALSE(ran);
}

TEMPLATE_TEST_CASE("Inside a task, options count too", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto a = TestType::template Handle<Alpha>::get(device);
  auto b = TestType::template Handle<Beta>::get(device);
  const auto kind = a.submit_blocking(
      [&](Alpha&) { return kind_of([&] { b.submit_blocking([](Beta&) {}, before(Clock::now() - 1s)); }); });
  CHECK(kind == Kind::Expired);
  const auto statistics = at_rest(a);
  CHECK(statistics.expired == 1);
  CHECK(conserved(statistics));
}

TEMPLATE_TEST_CASE("A call that starts before its deadline runs to its end", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  const auto deadline = Clock::now() + 100ms;
  const int value = handle.submit_blocking(
      [&](Alpha&) {
        while (Clock::now() < deadline + 20ms) {
        }
        return 3;
      },
      before(deadline));
  CHECK(value == 3);
}

TEMPLATE_TEST_CASE("Label, call site, device and kind stand in the message", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  const cox::CallOptions options{Clock::now() - 1s, {}, "load the weights"};
  const auto message = message_of([&] { handle.submit_blocking([](Alpha&) {}, options); });
  CHECK_THAT(message, Catch::Matchers::ContainsSubstring("load the weights") &&
                          Catch::Matchers::ContainsSubstring("expired") &&
                          Catch::Matchers::ContainsSubstring(device.id().to_string()) &&
                          Catch::Matchers::ContainsSubstring("contract_options_test.cpp") &&
                          !Catch::Matchers::ContainsSubstring("\n"));
}

TEST_CASE("A blocking caller leaves at its deadline although the device is occupied", "[contract]") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  const Fate fate;
  bool ran = false;
  {
    const Occupied occupied(handle);
    const auto deadline = Clock::now() + 50ms;
    CHECK(kind_of([&] {
            handle.submit_blocking([&, ticket = fate.ticket()](Alpha&) { ran = true; }, before(deadline));
          }) == Kind::Expired);
    const auto late = Clock::now() - deadline;
    CHECK(late >= 0ms);
    CHECK(late < 2s);
    CHECK(fate.deaths() == 1);  // what it borrowed may go now
  }
  const auto statistics = at_rest(handle);
  CHECK(statistics.expired == 1);
  CHECK(conserved(statistics));
  CHECK_FALSE(ran);
}

TEST_CASE("A blocking caller leaves when stop is requested although the device is occupied", "[contract]") {
  for (int round = 0; round < 50; ++round) {
    const TestDevice device;
    auto handle = cox::DeviceHandle<Alpha>::get(device);
    const Occupied occupied(handle);
    std::stop_source stop;
    std::optional<Kind> kind;
    Gate returned;
    std::thread caller([&] {
      kind = kind_of([&] { handle.submit_blocking([](Alpha&) {}, unless(stop.get_token())); });
      returned.open();
    });
    REQUIRE(eventually([&] { return handle.statistics().depth >= (round % 2 == 0 ? 2U : 1U); }));
    stop.request_stop();
    const bool in_time = returned.opens_within(never);
    occupied.release();
    caller.join();
    REQUIRE(in_time);
    REQUIRE(kind == Kind::Cancelled);
  }
}

TEST_CASE("Deadlines that pass while the task starts leave nobody without an answer", "[contract]") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  std::atomic<int> ran{0};
  int answered = 0;
  int expired = 0;
  constexpr int calls = scaled(20'000);
  for (int i = 0; i < calls; ++i) {
    const auto deadline = Clock::now() + std::chrono::nanoseconds(i % 64 * 500);
    const auto kind = kind_of([&] { handle.submit_blocking([&](Alpha&) { ++ran; }, before(deadline)); });
    ++(kind ? expired : answered);
  }
  CHECK(answered == ran);
  CHECK(answered + expired == calls);
  const auto statistics = at_rest(handle);
  CHECK(statistics.expired == static_cast<std::uint64_t>(expired));
  CHECK(conserved(statistics));
}

TEST_CASE("Stops that race with the start leave nobody without an answer", "[contract]") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  std::atomic<int> ran{0};
  int answered = 0;
  constexpr int calls = scaled(10'000);
  std::stop_source sources[2];
  std::atomic<int> turn{0};
  std::thread stopper([&] {
    for (int i = 1; i <= calls; ++i) {
      while (turn.load(std::memory_order_acquire) < i) {
      }
      sources[i % 2].request_stop();
      turn.store(-i, std::memory_order_release);
    }
  });
  for (int i = 1; i <= calls; ++i) {
    sources[i % 2] = std::stop_source();
    const std::stop_token token = sources[i % 2].get_token();
    turn.store(i, std::memory_order_release);
    if (!kind_of([&] { handle.submit_blocking([&](Alpha&) { ++ran; }, unless(token)); })) ++answered;
    while (turn.load(std::memory_order_acquire) != -i) {
    }
  }
  stopper.join();
  CHECK(answered == ran);
  CHECK(conserved(at_rest(handle)));
}

TEMPLATE_TEST_CASE("exclusive takes options: a deadline that has passed, a stop that was requested, a label",
                   "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  bool ran = false;
  CHECK(kind_of([&] { handle.exclusive([&] { ran = true; }, before(Clock::now() - 1s)); }) == Kind::Expired);
  std::stop_source stop;
  stop.request_stop();
  CHECK(kind_of([&] { handle.exclusive([&] { ran = true; }, unless(stop.get_token())); }) == Kind::Cancelled);
  const cox::CallOptions labelled{Clock::now() - 1s, {}, "swap the weights"};
  CHECK_THAT(message_of([&] { handle.exclusive([] {}, labelled); }),
             Catch::Matchers::ContainsSubstring("swap the weights") &&
                 Catch::Matchers::ContainsSubstring("contract_options_test.cpp"));
  // Inside a task, too.
  const auto inside = handle.submit_blocking(
      [&](Alpha&) { return kind_of([&] { handle.exclusive([&] { ran = true; }, before(Clock::now() - 1s)); }); });
  CHECK(inside == Kind::Expired);
  CHECK_FALSE(ran);
  // In time it is an exclusive: calls inside run at once.
  const int value = handle.exclusive(
      [&] {
        int inner = 0;
        handle.submit([&](Alpha&) { inner = 5; });
        return inner;
      },
      before(Clock::now() + 1h));
  CHECK(value == 5);
  CHECK_THROWS_AS(handle.exclusive([] { throw std::out_of_range("inside"); }, cox::CallOptions{}), std::out_of_range);
  const auto statistics = at_rest(handle);
  CHECK(statistics.expired == 3);
  CHECK(statistics.cancelled == 1);
  CHECK(conserved(statistics));
}

TEST_CASE("A caller of exclusive leaves at its deadline although the device is occupied", "[contract]") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  bool ran = false;
  {
    const Occupied occupied(handle);
    CHECK(kind_of([&] { handle.exclusive([&] { ran = true; }, before(Clock::now() + 30ms)); }) == Kind::Expired);
  }
  CHECK(at_rest(handle).expired == 1);
  CHECK_FALSE(ran);
}
