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
/// thread. Destroyed without either, it completes the future with CallError Closed: everyone who waits gets an answer
/// (L2).
template <class T>
class Promise {
 public:
  /// `helper` runs those completion handlers that have no executor of their own.
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

  /// The operation is about to be queued at `device`; see begin(). Before future() is handed out.
  void queued_at(std::shared_ptr<WaitNode> device) noexcept { state_->queued().queued_at(std::move(device)); }
  /// The device thread has taken the operation up: a device thread may wait for the future from now on, for that waits
  /// for streams only (L10).
  void begin() noexcept { state_->queued().begin(); }

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
  /// The future is complete as soon as `device event` is reached and `settle()` has made its value, or thrown its
  /// error. Whoever waits for the future does that, or a helper thread of the device: `settle` must not block. It is
  /// destroyed then, or, if the future has been dropped, unrun when the device event is reached. Instead of set_value
  /// and set_error. With `earlier`, that is the future's error, unless `settle` throws another; a future that is
  /// dropped returns it to its stream at once. Throws std::bad_alloc; then nothing has happened.
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
  /// If the future is dropped without its result having been taken, the receipt returns the error.
  void set_error(detail::TakenError error) { std::exchange(state_, nullptr)->complete(std::move(error), std::nullopt); }

 private:
  void abandon() noexcept {
    const auto state = std::exchange(state_, nullptr);
    if (state == nullptr) return;
    std::exception_ptr error;
    try {
      throw CallError(CallError::Kind::Closed, "the operation was discarded unrun: its device was closed",
                      std::source_location());
    } catch (...) {  // or std::bad_alloc, which is an answer, too
      error = std::current_exception();
    }
    state->complete({std::move(error)}, std::nullopt);
  }

  std::shared_ptr<detail::FutureState<T>> state_;
};

}  // namespace cox
