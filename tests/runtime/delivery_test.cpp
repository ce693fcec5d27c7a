#include <coxswain/runtime/async/delivery.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/io_context.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace asio = boost::asio;

namespace {

// Delivers what `state` will hold to a handler that runs on `context` and owns `token`.
void deliver_later(asio::io_context& context, std::shared_ptr<int> token,
                   const std::shared_ptr<cox::detail::FutureState<int>>& state) {
  auto handler =
      asio::bind_executor(context.get_executor(), [token = std::move(token)](const std::exception_ptr&, int) {});
  cox::detail::Delivery<int, decltype(handler)>::start(std::move(handler), state);
}

std::shared_ptr<cox::detail::FutureState<int>> make_state() {
  return std::make_shared<cox::detail::FutureState<int>>(std::make_shared<cox::CompletionThread>(cox::DeviceId{}));
}

}  // namespace

TEST_CASE("A delivery refers to nothing of a context that was destroyed before the result was known") {
  auto context = std::make_unique<asio::io_context>();
  const auto token = std::make_shared<int>(0);
  const auto state = make_state();
  deliver_later(*context, token, state);
  CHECK(token.use_count() == 2);
  context.reset();
  CHECK(token.use_count() == 1);
  state->complete({}, 1);
}

TEST_CASE("A delivery refers to nothing of a context that was destroyed before the handler ran") {
  auto context = std::make_unique<asio::io_context>();
  const auto token = std::make_shared<int>(0);
  const auto state = make_state();
  deliver_later(*context, token, state);
  state->complete({}, 1);
  CHECK(token.use_count() == 2);
  context.reset();
  CHECK(token.use_count() == 1);
}

TEST_CASE("A delivery that starts while its context is destroyed drops its handler at once") {
  auto context = std::make_unique<asio::io_context>();
  const auto token = std::make_shared<int>(0);
  const auto late = make_state();
  asio::io_context* const raw = context.get();
  auto starts_another = std::shared_ptr<int>(new int(0), [raw, token, late](const int* number) {
    delete number;
    deliver_later(*raw, token, late);
  });
  const auto state = make_state();
  deliver_later(*context, std::move(starts_another), state);
  context.reset();
  late->complete({}, 1);
  CHECK(token.use_count() == 1);
  state->complete({}, 1);
}
