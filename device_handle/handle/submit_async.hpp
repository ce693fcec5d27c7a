#pragma once

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/device_handle/handle/pending_handler.hpp>
#include <coxswain/device_handle/service/call.hpp>

#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/system_executor.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace cox::detail {

/// The Asio signature of a call that returns R.
template <class R>
struct AsyncSignature {
  using type = void(std::exception_ptr, std::decay_t<R>);
};
template <>
struct AsyncSignature<void> {
  using type = void(std::exception_ptr);
};

/// Starts an asynchronous operation: calls `start(handler)`, at once or when the token initiates it.
template <class R, class Start, class CompletionToken>
auto initiate(Start&& start, CompletionToken&& token) {
  return boost::asio::async_initiate<CompletionToken, typename AsyncSignature<R>::type>(
      [start = std::forward<Start>(start)](auto&& handler) mutable { start(std::forward<decltype(handler)>(handler)); },
      token);
}

/// The executor on which a handler runs.
template <class Handler>
using HandlerExecutor = boost::asio::associated_executor_t<Handler, boost::asio::system_executor>;

/// Completes `handler` with `error`, by post, for a call that could not be prepared. Throws what the executor's post
/// throws.
template <class R, class Handler>
void post_error(Handler&& handler, std::exception_ptr error) {
  const auto executor = boost::asio::get_associated_executor(handler, boost::asio::system_executor());
  boost::asio::post(executor, [handler = std::forward<Handler>(handler), error = std::move(error),
                               stream = StreamId::current()]() mutable {
    const StreamScope scope(stream);
    if constexpr (std::is_void_v<R>) {
      std::move(handler)(std::move(error));
    } else {
      std::move(handler)(std::move(error), std::decay_t<R>());
    }
  });
}

/// An asynchronous call: the body, the completion handler and, later, the result, in one allocation. So the result is
/// not moved, and between the end of the body and the handler only the executor's post can fail.
///
///     queued --run--> body has run --------------------+--post--> the handler runs on its executor,
///     queued --discard, refuse--> body destroyed unrun-'          with the submitter's StreamId
template <class Body, class Handler>
class AsyncCall final : public PendingHandler {
 public:
  using Result = std::invoke_result_t<Body&>;

  /// Moves from `handler` last: if the constructor throws, `handler` is unchanged.
  AsyncCall(Body&& body, Handler& handler, DeviceId device)
      : body_(std::in_place, std::move(body)),
        work_(boost::asio::prefer(boost::asio::get_associated_executor(handler, boost::asio::system_executor()),
                                  boost::asio::execution::outstanding_work.tracked)),
        stream_(StreamId::current()),
        device_(device),
        handler_(std::move(handler)) {}

  /// Called once, before the call is queued. Returns false if the executor's context is being destroyed: the call runs
  /// without its handler, which the caller has to drop. Throws std::bad_alloc.
  [[nodiscard]] bool attach() {
    return PendingHandler::attach(boost::asio::get_associated_executor(*handler_, boost::asio::system_executor()));
  }
  void drop() noexcept { drop_handler(); }

  Outcome run() noexcept {
    result_.run(*body_);
    body_.reset();  // before the handler can run (L6)
    const Outcome outcome = result_.failed() ? Outcome::Failed : Outcome::Completed;
    complete();
    return outcome;
  }
  void fail(std::exception_ptr error) noexcept {
    body_.reset();
    result_.fail(std::move(error));
    complete();
  }
  [[nodiscard]] DeviceId device() const noexcept { return device_; }

 private:
  // Keeps the executor's context from running out of work until the handler runs.
  using Work =
      std::decay_t<typename boost::asio::prefer_result<HandlerExecutor<Handler>,
                                                       boost::asio::execution::outstanding_work_t::tracked_t>::type>;

  // A post may fail because memory is exhausted; it is tried twice. If both fail, the handler's executor cannot be
  // reached. The handler is then destroyed, which ends a coroutine or breaks a promise, and the error is reported.
  void complete() noexcept {
    for (const bool last : {false, true}) {
      try {
        return post_unless_dropped(
            [this] { boost::asio::post(*work_, [self = shared_from_this(), this] { call_handler(); }); });
      } catch (...) {
        if (last) report_task_error({device_, stream_, std::current_exception()});
      }
    }
    give_up();
  }

  void drop_handler() noexcept override {
    handler_.reset();
    work_.reset();
  }

  void call_handler() {
    if (!claim()) return;
    const StreamScope scope(stream_);
    Handler handler = std::move(*handler_);
    handler_.reset();
    work_.reset();
    std::exception_ptr error = result_.error();
    if constexpr (std::is_void_v<Result>) {
      std::move(handler)(std::move(error));
    } else if (error != nullptr) {
      std::move(handler)(std::move(error), std::decay_t<Result>());
    } else if constexpr (std::is_lvalue_reference_v<Result>) {
      std::move(handler)(std::move(error), std::decay_t<Result>(result_.value()));
    } else {
      std::move(handler)(std::move(error), std::move(result_.value()));
    }
  }

  std::optional<Body> body_;
  std::optional<Work> work_;
  StreamId stream_;
  DeviceId device_;
  CallResult<Result> result_;
  std::optional<Handler> handler_;
};

/// The task of an AsyncCall. Destroyed unrun, it completes the call with CallError Closed (L2).
template <class Call>
class AsyncTask {
 public:
  explicit AsyncTask(std::shared_ptr<Call> call) noexcept : call_(std::move(call)) {}
  AsyncTask(AsyncTask&&) noexcept = default;
  AsyncTask& operator=(AsyncTask&&) = delete;
  ~AsyncTask() {
    if (call_ != nullptr) discard(CallError::Kind::Closed);
  }

  Outcome operator()() noexcept { return std::exchange(call_, nullptr)->run(); }
  void discard(CallError::Kind reason) noexcept {
    const auto call = std::exchange(call_, nullptr);
    call->fail(call_error(reason, call->device(), nullptr));
  }
  /// Completes the call with `error`: the task was not accepted. Does nothing if the call has completed already because
  /// the task was destroyed.
  void refuse(std::exception_ptr error) noexcept {
    if (const auto call = std::exchange(call_, nullptr)) call->fail(std::move(error));
  }

 private:
  std::shared_ptr<Call> call_;
};

/// Starts the call of `body` on `device`, whose result `handler` gets. `post(task)` enqueues the task, which with
/// options checks them before it starts.
template <class Device, class Body, class Handler, class Post, class... Options>
void start_async(Body&& body, Handler&& handler, DeviceId device, const Post& post, const Options&... options) {
  using Call = AsyncCall<std::decay_t<Body>, std::decay_t<Handler>>;
  std::shared_ptr<Call> call;
  try {
    call = std::make_shared<Call>(std::forward<Body>(body), handler, device);
  } catch (...) {
    return post_error<typename Call::Result>(std::forward<Handler>(handler), std::current_exception());
  }
  auto task = guarded<Device>(AsyncTask<Call>(call), options...);
  bool attached = true;
  try {
    attached = call->attach();
    post(task);
  } catch (...) {
    task.refuse(std::current_exception());
  }
  if (!attached) call->drop();  // last: the handler may own the coroutine that makes this call
}

}  // namespace cox::detail
