#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/runtime/async/device_event.hpp>
#include <coxswain/runtime/async/future_state.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace cox {

template <class T>
class Future;

/// The completing side of a Future. Move-only; exactly one of set_value, set_error and settle_at is called, from any
/// thread. If it is destroyed without such a call, it completes the future with CallError Closed, so that every waiter
/// is notified (L2).
template <class T>
class Promise {
 public:
  /// `helper` runs the completion handlers that have no executor of their own.
  explicit Promise(std::shared_ptr<CompletionThread> helper)
      : state_(std::make_shared<detail::FutureState<T>>(std::move(helper))) {}
  Promise(Promise&&) noexcept = default;
  Promise& operator=(Promise&& other) noexcept {
    if (this != &other) {
      abandon();
      state_ = std::move(other.state_);
    }
    return *this;
  }
  ~Promise() { abandon(); }

  /// The operation is about to be queued at `device`; see begin(). Call it before another thread has the future.
  void queued_at(std::shared_ptr<WaitNode> device) noexcept { state_->queued().queued_at(std::move(device)); }
  /// The device thread has begun to process the operation. From now on, a device thread may wait for the future,
  /// because that waits only for streams (L10).
  void begin() noexcept { state_->queued().begin(); }

  /// Whether the promise must still be completed: it was not, and is not moved from.
  [[nodiscard]] bool pending() const noexcept { return state_ != nullptr; }
  /// The future of this promise; call once.
  [[nodiscard]] Future<T> future() const { return Future<T>(state_); }

  template <class V = T>
    requires(!std::is_void_v<T>)
  void set_value(V value) {
    std::exchange(state_, nullptr)->complete({}, std::optional<T>(std::move(value)));
  }
  void set_value()
    requires std::is_void_v<T>
  {
    std::exchange(state_, nullptr)->complete({}, detail::Nothing{});
  }
  /// Called instead of set_value and set_error. The future is complete when `device_event` is reached and `settle()`
  /// has returned its value or thrown its error. `settle` runs on a thread that waits for the future, or on a helper
  /// thread of the device: it must not block. It is destroyed after it has run. If the future has been dropped, it is
  /// destroyed without being run when the event is reached. `earlier`, if set, is the error of the future, unless
  /// `settle` throws another one; a future that is dropped returns it to its stream at once. Throws std::bad_alloc; the
  /// promise can then still be completed by set_error.
  template <class F>
  void settle_at(std::shared_ptr<DeviceEvent> device_event, F settle, detail::TakenError earlier = {}) {
    if constexpr (std::is_void_v<T>) {
      state_->settle_at(
          std::move(device_event),
          [settle = std::move(settle)]() mutable {
            settle();
            return detail::Nothing{};
          },
          std::move(earlier));
    } else {
      state_->settle_at(std::move(device_event), std::move(settle), std::move(earlier));
    }
    state_.reset();
  }
  void set_error(std::exception_ptr error) { set_error(detail::TakenError{std::move(error)}); }
  /// If the future is dropped before its result was taken, the receipt returns the error to its stream.
  void set_error(detail::TakenError error) { std::exchange(state_, nullptr)->complete(std::move(error), std::nullopt); }

 private:
  void abandon() noexcept {
    const auto state = std::exchange(state_, nullptr);
    if (state == nullptr) return;
    std::exception_ptr error;
    try {
      throw CallError(CallError::Kind::Closed, "the operation was discarded before it ran: its device was shut down",
                      std::source_location());
    } catch (...) {  // or std::bad_alloc, which completes the future as well
      error = std::current_exception();
    }
    state->complete({std::move(error)}, std::nullopt);
  }

  std::shared_ptr<detail::FutureState<T>> state_;
};

}  // namespace cox
