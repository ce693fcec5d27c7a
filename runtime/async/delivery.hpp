#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/device_handle/handle/pending_handler.hpp>
#include <coxswain/runtime/async/future_state.hpp>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/system_executor.hpp>

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace cox::detail {

/// A completion handler that waits for a future. It is called once, with the result, or with CallError Cancelled if its
/// cancellation slot is signalled first; the operation itself then continues, and its result is dropped. The handler
/// runs on its associated executor, or on the device's completion thread if it has none, with the StreamId of the
/// thread that made the call (L9).
template <class T, class Handler>
class Delivery final : public PendingHandler {
 public:
  using State = FutureState<T>;

  static void start(Handler handler, std::shared_ptr<State> state) {
    State& shared = *state;
    const auto self = std::make_shared<Delivery>(std::move(handler), std::move(state));
    if constexpr (has_executor) {
      const Executor executor = self->work_->get_executor();
      if (!self->attach(executor)) return self->drop_handler();  // the executor's context is being destroyed
    }
    self->listen();
    shared.when_ready([self] { self->finish(false); });
  }

  Delivery(Handler handler, std::shared_ptr<State> state)
      : handler_(std::move(handler)),
        state_(std::move(state)),
        work_(boost::asio::make_work_guard(boost::asio::get_associated_executor(*handler_))) {}

 private:
  using Executor = boost::asio::associated_executor_t<Handler>;
  static constexpr bool has_executor = !std::is_same_v<std::remove_cvref_t<Executor>, boost::asio::system_executor>;

  void listen() {
    auto slot = boost::asio::get_associated_cancellation_slot(*handler_);
    if (!slot.is_connected()) return;
    slot.assign([weak = weak_from_this()](boost::asio::cancellation_type type) {
      using boost::asio::cancellation_type;
      constexpr auto any = cancellation_type::terminal | cancellation_type::partial | cancellation_type::total;
      if (const auto self = weak.lock(); self != nullptr && (type & any) != cancellation_type::none)
        static_cast<Delivery&>(*self).finish(true);
    });
  }

  // Completion and cancellation both call this; the first call delivers, and a later one returns. The acquire pairs
  // with the release of the call before.
  void finish(bool cancelled) noexcept {
    if (claimed_.exchange(true, std::memory_order_acq_rel)) return;
    auto deliver = [self = shared_from_this(), this, cancelled] { this->deliver(cancelled); };
    if constexpr (has_executor) {
      post(deliver);
    } else {
      const auto helper = state_->helper();
      helper->execute(std::move(deliver));
    }
  }

  // A post may fail because memory is exhausted, so it is tried twice. If both fail, the handler cannot be passed to
  // its executor: it is destroyed, which ends a coroutine or breaks a promise, and the error is reported.
  template <class F>
  void post(const F& deliver) noexcept {
    for (const bool last : {false, true}) {
      try {
        return post_unless_dropped([&] { boost::asio::post(work_->get_executor(), deliver); });
      } catch (...) {
        if (last) report_task_error({DeviceId{}, stream_, std::current_exception()});
      }
    }
    give_up();
  }

  void drop_handler() noexcept override {
    handler_.reset();
    work_.reset();
  }

  void deliver(bool cancelled) {
    if (!claim()) return;
    const StreamScope scope(stream_);
    // Only one thread at a time may use a cancellation signal and its slot: that of the handler's executor, if it has
    // one. Without an executor, the thread that emits the signal is not known here, so the slot is not cleared. Its
    // function then finds this delivery claimed or destroyed, and does nothing.
    if constexpr (has_executor) {
      if (auto slot = boost::asio::get_associated_cancellation_slot(*handler_); slot.is_connected()) slot.clear();
    }
    Handler handler = std::move(*handler_);
    handler_.reset();
    work_.reset();
    std::exception_ptr error = cancelled ? cancellation() : state_->take_error();
    if constexpr (std::is_void_v<T>) {
      std::move(handler)(std::move(error));
    } else {
      T value = error ? T{} : state_->take_value();
      std::move(handler)(std::move(error), std::move(value));
    }
  }

  static std::exception_ptr cancellation() {
    return std::make_exception_ptr(CallError(
        CallError::Kind::Cancelled, "the wait was cancelled; the operation continues, and its result is discarded"));
  }

  std::optional<Handler> handler_;
  std::shared_ptr<State> state_;
  std::optional<boost::asio::executor_work_guard<Executor>> work_;  // keeps the executor's context running
  StreamId stream_ = StreamId::current();
  std::atomic<bool> claimed_{false};
};

}  // namespace cox::detail
