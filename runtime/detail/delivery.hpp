#pragma once

#include <coxswain/device_handle/call_error.hpp>
#include <coxswain/device_handle/stream_id.hpp>
#include <coxswain/runtime/detail/future_state.hpp>

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

/// A completion handler that waits for a future: called once, with the result, or with CallError Cancelled if its
/// cancellation slot is signalled first. The operation itself goes on then, and its result is dropped. The handler runs
/// on its associated executor, or on the device's completion thread if it has none, with the StreamId of the thread
/// that asked (L9).
template <class T, class Handler>
class Delivery : public std::enable_shared_from_this<Delivery<T, Handler>> {
 public:
  using State = FutureState<T>;

  static void start(Handler handler, std::shared_ptr<State> state) {
    State& shared = *state;
    const auto self = std::make_shared<Delivery>(std::move(handler), std::move(state));
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
    slot.assign([weak = this->weak_from_this()](boost::asio::cancellation_type type) {
      using boost::asio::cancellation_type;
      constexpr auto any = cancellation_type::terminal | cancellation_type::partial | cancellation_type::total;
      if (const auto self = weak.lock(); self != nullptr && (type & any) != cancellation_type::none) self->finish(true);
    });
  }

  // The first to come decides. Acquire and release: who delivers sees all that was there when the other came.
  void finish(bool cancelled) {
    if (claimed_.exchange(true, std::memory_order_acq_rel)) return;
    auto deliver = [self = this->shared_from_this(), cancelled] { self->deliver(cancelled); };
    if constexpr (has_executor) {
      boost::asio::post(work_->get_executor(), std::move(deliver));
    } else {
      const auto helper = state_->helper();
      helper->execute(std::move(deliver));
    }
    work_.reset();
  }

  void deliver(bool cancelled) {
    const StreamScope scope(stream_);
    if (auto slot = boost::asio::get_associated_cancellation_slot(*handler_); slot.is_connected()) slot.clear();
    Handler handler = std::move(*handler_);
    handler_.reset();
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
        CallError::Kind::Cancelled, "the wait was cancelled; the operation goes on, and its result is dropped"));
  }

  std::optional<Handler> handler_;
  std::shared_ptr<State> state_;
  std::optional<boost::asio::executor_work_guard<Executor>> work_;  // keeps the executor's context running
  StreamId stream_ = StreamId::current();
  std::atomic<bool> claimed_{false};
};

}  // namespace cox::detail
