#pragma once

#include <coxswain/device_handle/base/deadline.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/handle/submit_async.hpp>
#include <coxswain/runtime/async/delivery.hpp>
#include <coxswain/runtime/async/promise.hpp>

#include <boost/asio/async_result.hpp>

#include <chrono>
#include <coroutine>
#include <exception>
#include <memory>
#include <type_traits>
#include <utility>

namespace cox {

/// The result of an operation that a device completes later. It is completion-driven: no thread is held while it is
/// pending. It may be dropped at any time, which cancels nothing; buffers that the device still uses are kept alive
/// until the device has finished with them. Failures that a dropped future would have thrown stay with their stream:
/// its next blocking call throws them (L12).
/// Move-only. One of get(), async_get() and co_await takes the result, once.
template <class T>
class Future {
 public:
  Future() noexcept = default;
  Future(Future&&) noexcept = default;
  Future& operator=(Future&&) noexcept = default;
  ~Future() = default;

  /// False if the future is default-constructed or moved from, or if its result was taken. All calls below require
  /// true.
  [[nodiscard]] bool valid() const noexcept { return state_ != nullptr; }
  /// Whether the result is available, so that get() does not block.
  [[nodiscard]] bool ready() const { return state_->ready(); }
  /// Blocks until the result is available. Throws CallError WouldDeadlock if the operation itself has to wait for the
  /// calling thread, for example on a device thread (L10); the future stays valid.
  void wait() const { state_->wait(); }
  /// Blocks until the result is available or `time` has passed; returns whether it is available. Throws what wait()
  /// throws.
  template <class Rep, class Period>
  [[nodiscard]] bool wait_for(std::chrono::duration<Rep, Period> time) const {
    return state_->wait_until(detail::deadline_after(time));
  }
  /// Blocks until the result is available, and takes it. Returns the value, or throws the error of the operation or
  /// what wait() throws.
  T get() {
    state_->wait();
    return take(*std::exchange(state_, nullptr));
  }

  /// Takes the result with any Asio completion token; signature void(std::exception_ptr, T), or
  /// void(std::exception_ptr) for Future<void>. The handler runs on its associated executor, or on the device's
  /// completion thread if it has none, never inside this call. In the handler StreamId::current() is that of this call
  /// (L9). If the cancellation slot of the handler is signalled first, the handler is called with CallError Cancelled;
  /// the operation continues, and its result is dropped.
  template <class CompletionToken>
  auto async_get(CompletionToken&& token) {
    return deliver(nullptr, std::forward<CompletionToken>(token));
  }
  /// Calls async_get on the future that `start()` returns. An exception from `start` also completes the token, by post:
  /// on the handler's executor, or on boost::asio::system_executor if it has none.
  template <class Start, class CompletionToken>
  static auto start_async(Start&& start, CompletionToken&& token) {
    Future future;
    std::exception_ptr refused;
    try {
      future = std::forward<Start>(start)();
    } catch (...) {
      refused = std::current_exception();
    }
    return future.deliver(std::move(refused), std::forward<CompletionToken>(token));
  }

  /// For coroutines other than Asio's (those use async_get with use_awaitable). Resumes on the device's completion
  /// thread, with the StreamId that the coroutine had.
  auto operator co_await() && { return Awaiter{std::exchange(state_, nullptr)}; }

 private:
  friend class Promise<T>;
  using State = detail::FutureState<T>;
  template <class V>
  struct SignatureOf {
    using type = void(std::exception_ptr, V);
  };
  template <class V>
    requires std::is_void_v<V>
  struct SignatureOf<V> {
    using type = void(std::exception_ptr);
  };

  struct Awaiter {
    std::shared_ptr<State> state;
    [[nodiscard]] bool await_ready() const { return state->ready(); }
    void await_suspend(std::coroutine_handle<> coroutine) {
      State& shared = *state;
      shared.when_ready([coroutine, stream = StreamId::current(), helper = shared.helper()] {
        helper->execute([coroutine, stream] { stream.executes(coroutine); });
      });
    }
    T await_resume() { return take(*state); }
  };

  // Completes the token with `refused` if it is not null, else with the result, which is then taken.
  template <class CompletionToken>
  auto deliver(std::exception_ptr refused, CompletionToken&& token) {
    using Signature = typename SignatureOf<T>::type;
    return boost::asio::async_initiate<CompletionToken, Signature>(
        [](auto handler, std::exception_ptr error, std::shared_ptr<State> state) {
          if (error != nullptr) {
            detail::post_error<T>(std::move(handler), std::move(error));
          } else {
            detail::Delivery<T, decltype(handler)>::start(std::move(handler), std::move(state));
          }
        },
        token, std::move(refused), std::exchange(state_, nullptr));
  }

  explicit Future(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

  static T take(State& state) {
    if (auto error = state.take_error()) std::rethrow_exception(std::move(error));
    if constexpr (!std::is_void_v<T>) return state.take_value();
  }

  std::shared_ptr<State> state_;
};

}  // namespace cox
