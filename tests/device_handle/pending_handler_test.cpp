#include <coxswain/device_handle/handle/pending_handler.hpp>
#include <coxswain/device_handle/handle/submit_async.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <atomic>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace asio = boost::asio;

namespace {

// An operation that records when its handler is called or dropped.
class TestOperation final : public cox::detail::PendingHandler {
 public:
  explicit TestOperation(asio::io_context& context) : work_(asio::make_work_guard(context)) {}

  void start() {
    const auto executor = work_->get_executor();
    if (!attach(executor)) drop_handler();
  }
  void complete() {
    post_unless_dropped([this] {
      asio::post(work_->get_executor(), [self = shared_from_this(), this] {
        if (!claim()) return;
        work_.reset();
        called = true;
      });
    });
  }
  void fail_to_post() { give_up(); }

  std::function<void()> when_dropped = [] {};
  std::atomic<bool> called{false};
  std::atomic<int> dropped{0};

 private:
  void drop_handler() noexcept override {
    when_dropped();
    work_.reset();
    ++dropped;
  }

  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
};

}  // namespace

TEST_CASE("A posted handler is called once, and is not dropped when its context is destroyed") {
  auto context = std::make_unique<asio::io_context>();
  const auto operation = std::make_shared<TestOperation>(*context);
  operation->start();
  operation->complete();
  CHECK_FALSE(operation->called);
  CHECK(context->run() == 1);
  CHECK(operation->called);
  context.reset();
  CHECK(operation->dropped == 0);
}

TEST_CASE("A context destroys the handlers that wait, whoever owns their operations") {
  auto context = std::make_unique<asio::io_context>();
  const auto waiting = std::make_shared<TestOperation>(*context);
  const auto posted = std::make_shared<TestOperation>(*context);
  waiting->start();
  posted->start();
  posted->complete();
  context.reset();
  CHECK(waiting->dropped == 1);
  CHECK(posted->dropped == 1);
  waiting->complete();  // the device is late
  waiting->fail_to_post();
  CHECK(waiting->dropped == 1);
  CHECK_FALSE(waiting->called);
  CHECK_FALSE(posted->called);
}

TEST_CASE("A context destroys an operation that only its handler owns") {
  auto context = std::make_unique<asio::io_context>();
  auto owner = std::make_shared<TestOperation>(*context);
  const std::weak_ptr<TestOperation> operation = owner;
  owner->when_dropped = [&owner] { owner.reset(); };
  owner->start();
  context.reset();
  CHECK(operation.expired());
}

TEST_CASE("An operation that starts while its context is destroyed loses its handler at once") {
  auto context = std::make_unique<asio::io_context>();
  const auto late = std::make_shared<TestOperation>(*context);
  const auto operation = std::make_shared<TestOperation>(*context);
  operation->when_dropped = [&] {
    late->start();
    CHECK(late->dropped == 1);
  };
  operation->start();
  context.reset();
  CHECK(operation->dropped == 1);
  late->complete();
  CHECK_FALSE(late->called);
}

TEST_CASE("A handler that cannot be posted is destroyed before its context") {
  auto context = std::make_unique<asio::io_context>();
  const auto operation = std::make_shared<TestOperation>(*context);
  std::latch giving_up{1};
  std::latch destroying{1};
  operation->when_dropped = [&] {
    giving_up.count_down();
    destroying.wait();
    for (int turn = 0; turn < 1'000; ++turn) std::this_thread::yield();  // in which the context would be gone
  };
  operation->start();
  std::thread device([&] { operation->fail_to_post(); });
  giving_up.wait();
  destroying.count_down();
  context.reset();
  CHECK(operation->dropped == 1);
  device.join();
  CHECK(operation->dropped == 1);
}

TEST_CASE("A call that a thread still owns refers to nothing of a context that was destroyed") {
  auto context = std::make_unique<asio::io_context>();
  const auto token = std::make_shared<int>(0);
  auto handler = asio::bind_executor(context->get_executor(), [token = token](const std::exception_ptr&, int) {});
  const auto body = [] { return 1; };
  const auto call = std::make_shared<cox::detail::AsyncCall<std::decay_t<decltype(body)>, decltype(handler)>>(
      std::decay_t<decltype(body)>(body), handler, cox::DeviceId{});
  REQUIRE(call->attach());
  static_cast<void>(call->run());  // the device thread owns the call a little longer
  CHECK(token.use_count() == 2);
  context.reset();
  CHECK(token.use_count() == 1);
}
