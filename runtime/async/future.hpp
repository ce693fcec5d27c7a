#pragma once

#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/handle/submit_async.hpp>
#include <coxswain/runtime/async/delivery.hpp>
#include <coxswain/runtime/async/promise.hpp>
#include <coxswain/runtime/base/deadline.hpp>

#include <boost/asio/async_result.hpp>

#include <chrono>
#include <coroutine>
#include <exception>
#include <memory>
#include <type_traits>
#include <utility>

namespace cox {

/// The result of an operation that a device completes later. Driven by completion: no thread is held for it. Dropping
/// it at any time is safe and cancels nothing; buffers that the device still uses live on until it is done with them.
/// Failures that a dropped future would have thrown stay with their stream: its next blocking call throws them (L12).
/// Move-only. One of get(), async_get() and co_await takes the result, once.
template <class T>
class Future {
 public:
  Future() noexcept = default;
  Future(Future&&) noexcept = default;
  Future& operator=(Future&&) noexcept = default;
  ~Future() = default;

  /// Not default-constructed, not moved from, result not taken. All below require it.
  [[nodiscard]] bool valid() const noexcept { return state_ != nullptr; }
  /// The result is there; get() will not block.
  [[nodiscard]] bool ready() const { return state_->ready(); }
  /// Blocks until the result is there. Throws CallError WouldDeadlock on a device thread that the operation itself has
  /// to wait for (L10); the future stays valid.
  void wait() const { state_->wait(); }
  /// Blocks until the result is there or the time is over; returns whether it is there. Throws as wait().
  template <class Rep, class Period>
  [[nodiscard]] bool wait_for(std::chrono::duration<Rep, Period> time) const {
    return state_->wait_until(detail::deadline_after(time));
  }
  /// Blocks until the result is there, and takes it: returns the value, or throws what the operation failed with, or as
  /// wait().
  T get() {
    state_->wait();
    return take(*std::exchange(state_, nullptr));
  }

  /// Takes the result by any Asio completion token; signature void(std::exception_ptr, T), or void(std::exception_ptr)
  /// for Future<void>. The handler runs on its associated executor, or on the device's completion thread if it has
  /// none, never inside this call; StreamId::current() is what it was here (L9). A handler with a cancellation slot
  /// that is signalled gets CallError Cancelled; the operation goes on, and its result is dropped.
  template <class CompletionToken>
  auto async_get(CompletionToken&& token) {
    return deliver(nullptr, std::forward<CompletionToken>(token));
  }
  /// async_get of the future that `start()` returns. What `start` throws completes the token, too, by post: on the
  /// handler's executor, or on boost::asio::system_executor if it has none.
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

  // Completes the token with `refused`, or else with the result, which is taken.
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
