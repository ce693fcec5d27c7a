// What a call gives back, and where what a task throws goes. One suite, both handles.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <stdexcept>

using namespace contract;

namespace {

struct Oddity {  // no std::exception
  int value;
};

struct Sink {
  explicit Sink(cox::DeviceId) {}
  void on_task_error(const std::exception_ptr& error, cox::StreamId stream) {
    errors.push_back(cox::describe(error));
    streams.push_back(stream);
  }
  std::vector<std::string> errors;
  std::vector<cox::StreamId> streams;
};

struct BrokenSink {
  explicit BrokenSink(cox::DeviceId) {}
  void on_task_error(const std::exception_ptr&, cox::StreamId) { throw std::runtime_error("the sink itself"); }
};

/// Collects what reaches the process-wide callback while it lives.
class Callback {
 public:
  Callback() {
    cox::set_task_error_callback([state = state_](const cox::TaskError& error) {
      const std::scoped_lock lock(state->mutex);
      state->errors.push_back(error);
    });
  }
  ~Callback() { cox::set_task_error_callback({}); }
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;
  [[nodiscard]] std::vector<cox::TaskError> errors() const {
    const std::scoped_lock lock(state_->mutex);
    return state_->errors;
  }

 private:
  struct State {
    std::mutex mutex;
    std::vector<cox::TaskError> errors;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace

TEMPLATE_TEST_CASE("A blocking call returns values, references, move-only values and nothing", "[contract]", Threaded,
                   Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  CHECK(handle.submit_blocking([](Alpha&) { return 7; }) == 7);
  CHECK(handle.submit_blocking([](Alpha&) { return std::string(1000, 'x'); }) == std::string(1000, 'x'));
  CHECK(*handle.submit_blocking([](Alpha&) { return std::make_unique<int>(8); }) == 8);
  int& reference = handle.submit_blocking([](Alpha& alpha) -> int& { return alpha.value; });
  const int& constant = handle.submit_blocking([](Alpha& alpha) -> const int& { return alpha.value; });
  CHECK(&reference == &constant);
  static_assert(std::is_void_v<decltype(handle.submit_blocking([](Alpha&) {}))>);
  handle.submit_blocking([](Alpha& alpha) { alpha.value = 9; });
  CHECK(constant == 9);
  CHECK(handle.submit_blocking(&Alpha::value) == 9);
}

TEMPLATE_TEST_CASE("A blocking call may borrow the caller's stack", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  int here = 1;
  handle.submit_blocking([&](Alpha&) { here = 2; });
  CHECK(here == 2);
  auto counter = [calls = 0](Alpha&) mutable { return ++calls; };
  CHECK(handle.submit_blocking(counter) == 1);
  CHECK(handle.submit_blocking(counter) == 1);  // each call has a copy of its own
}

TEMPLATE_TEST_CASE("L5: a blocking caller gets what the task threw, unchanged, and later tasks run", "[contract]",
                   Threaded, Inline) {
  const Callback callback;
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  const auto original = std::make_exception_ptr(std::out_of_range("row 7"));
  try {
    handle.submit_blocking([&](Alpha&) { std::rethrow_exception(original); });
    FAIL("nothing was thrown");
  } catch (const std::out_of_range& error) {
    CHECK(std::current_exception() == original);
    CHECK(std::string(error.what()) == "row 7");
  }
  try {
    handle.submit_blocking([](Alpha&) -> int { throw Oddity{5}; });
    FAIL("nothing was thrown");
  } catch (const Oddity& oddity) {
    CHECK(oddity.value == 5);
  }
  CHECK_THROWS_AS(handle.exclusive([]() -> int { throw Oddity{6}; }), Oddity);
  CHECK(handle.submit_blocking([](Alpha&) { return 1; }) == 1);
  CHECK(callback.errors().empty());
}

TEMPLATE_TEST_CASE("L5: what a fire-and-forget task throws goes to the service's sink with the submitter's stream",
                   "[contract]", Threaded, Inline) {
  const Callback callback;
  const TestDevice device;
  auto handle = TestType::template Handle<Sink>::get(device);
  const cox::StreamId stream = cox::StreamId::allocate();
  stream.executes([&] { handle.submit([](Sink&) { throw std::runtime_error("first"); }); });
  handle.submit([](Sink&) { throw Oddity{1}; });
  const auto sink = handle.submit_blocking([](Sink& s) { return s; });
  CHECK(sink.errors == std::vector<std::string>{"first", "unknown exception"});
  CHECK(sink.streams == std::vector{stream, cox::StreamId::current()});
  CHECK(callback.errors().empty());
}

TEMPLATE_TEST_CASE("L5: without a sink it goes to the process-wide callback, once", "[contract]", Threaded, Inline) {
  const Callback callback;
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  handle.submit([](Alpha&) { throw std::runtime_error("nobody waits"); });
  handle.submit([](Alpha& alpha) { alpha.value = 3; });
  CHECK(handle.submit_blocking([](Alpha& alpha) { return alpha.value; }) == 3);
  const auto errors = callback.errors();
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].device == device.id());
  CHECK(errors[0].stream == cox::StreamId::current());
  CHECK(cox::describe(errors[0].error) == "nobody waits");
}

TEMPLATE_TEST_CASE("L5: neither the error nor the sink's own is lost if the sink throws", "[contract]", Threaded,
                   Inline) {
  const Callback callback;
  const TestDevice device;
  auto handle = TestType::template Handle<BrokenSink>::get(device);
  handle.submit([](BrokenSink&) { throw std::runtime_error("the task"); });
  handle.submit_blocking([](BrokenSink&) {});
  std::vector<std::string> texts;
  for (const auto& error : callback.errors()) texts.push_back(cox::describe(error.error));
  std::ranges::sort(texts);
  CHECK(texts == std::vector<std::string>{"the sink itself", "the task"});
}

TEMPLATE_TEST_CASE("L5: a callback that throws stops nobody", "[contract]", Threaded, Inline) {
  cox::set_task_error_callback([](const cox::TaskError&) { throw std::runtime_error("the callback itself"); });
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  handle.submit([](Alpha&) { throw std::runtime_error("the task"); });
  CHECK(handle.submit_blocking([](Alpha&) { return 1; }) == 1);
  cox::set_task_error_callback({});
}

TEMPLATE_TEST_CASE("L9: a task runs under the submitter's StreamId, also zero, and it is restored after a throw",
                   "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Sink>::get(device);
  const cox::StreamId mine = cox::StreamId::current();
  const auto seen = [&] { return handle.submit_blocking([](Sink&) { return cox::StreamId::current(); }); };
  CHECK(seen() == mine);
  for (const cox::StreamId id : {cox::StreamId{0}, cox::StreamId{~std::uint64_t{0}}, cox::StreamId::allocate()}) {
    const cox::StreamScope scope(id);
    CHECK(seen() == id);
    CHECK(handle.exclusive([] { return cox::StreamId::current(); }) == id);
    CHECK_THROWS_AS(handle.submit_blocking([](Sink&) { throw Oddity{1}; }), Oddity);
    CHECK(cox::StreamId::current() == id);
  }
  handle.submit([](Sink&) { throw Oddity{1}; });
  CHECK(cox::StreamId::current() == mine);
  CHECK(seen() == mine);
}

TEMPLATE_TEST_CASE("L9: a task that another task queues runs under the same StreamId", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto alpha = TestType::template Handle<Alpha>::get(device);
  const cox::StreamId stream = cox::StreamId::allocate();
  std::optional<cox::StreamId> inner;
  Gate done;
  stream.executes([&] {
    alpha.submit([&, alpha](Alpha&) mutable {
      alpha.submit([&](Alpha&) {
        inner = cox::StreamId::current();
        done.open();
      });
    });
  });
  done.wait();
  CHECK(inner == stream);
}

TEMPLATE_TEST_CASE("L2: at rest, what was accepted adds up", "[contract]", Threaded, Inline) {
  const Callback callback;
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  const auto first = at_rest(handle);
  for (int i = 0; i < 10; ++i) handle.submit([](Alpha&) {});
  for (int i = 0; i < 3; ++i) handle.submit([](Alpha&) { throw Oddity{1}; });
  CHECK_THROWS(handle.submit_blocking([](Alpha&) { throw Oddity{1}; }));
  handle.submit([](Alpha&) {}, before(std::chrono::steady_clock::now() - 1s));
  std::stop_source stop;
  stop.request_stop();
  handle.submit([](Alpha&) {}, unless(stop.get_token()));
  handle.exclusive([&] { handle.submit([](Alpha&) {}); });
  const auto after = at_rest(handle);
  CHECK(conserved(after));
  CHECK(after.accepted - first.accepted == 18);
  CHECK(after.completed - first.completed == 12);
  CHECK(after.failed == 4);
  CHECK(after.cancelled == 1);
  CHECK(after.expired == 1);
  CHECK(after.depth == 0);
}

TEMPLATE_TEST_CASE("A handle says what it is", "[contract]", Threaded, Inline) {
  using Handle = typename TestType::template Handle<Alpha>;
  const TestDevice device;
  Handle handle = Handle::get(device);
  static_assert(std::is_nothrow_move_constructible_v<Handle> && std::is_copy_constructible_v<Handle>);
  static_assert(!std::is_default_constructible_v<Handle>);
  CHECK(Handle::is_blocking() == std::is_same_v<TestType, Inline>);
  CHECK(handle.device_id() == device.id());
  static_assert(noexcept(handle.flush_queue()));
  handle.flush_queue();
  Handle copy = handle;
  handle.submit_blocking([](Alpha& alpha) { alpha.value = 4; });
  CHECK(copy.submit_blocking([](Alpha& alpha) { return alpha.value; }) == 4);
}

TEMPLATE_TEST_CASE("Closures of many threads never run at the same time", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  constexpr int per_thread = scaled(20'000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([handle]() mutable {
      for (int i = 0; i < per_thread; ++i) {
        if (i % 16 == 0) {
          handle.submit_blocking([](Alpha& alpha) { ++alpha.value; });
        } else {
          handle.submit([](Alpha& alpha) { ++alpha.value; });
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(handle.submit_blocking([](Alpha& alpha) { return alpha.value; }) == 4 * per_thread);
}
