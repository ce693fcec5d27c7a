#pragma once

#include <coxswain/device_handle/call.hpp>

#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/system_executor.hpp>

#include <exception>
#include <tuple>
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

/// Starts an asynchronous operation: `start(handler)`, at once or when the token says so.
template <class R, class Start, class CompletionToken>
auto initiate(Start&& start, CompletionToken& token) {
  return boost::asio::async_initiate<CompletionToken, typename AsyncSignature<R>::type>(
      [start = std::forward<Start>(start)](auto&& handler) mutable { start(std::forward<decltype(handler)>(handler)); },
      token);
}

/// A task whose result goes to an Asio completion handler, on the handler's executor and with the submitter's StreamId.
template <class Body, class Handler>
class AsyncTask {
  using R = std::invoke_result_t<Body&>;
  using Executor = boost::asio::associated_executor_t<Handler, boost::asio::system_executor>;
  // Keeps the executor's context from running out of work while the task is queued.
  using Work = std::decay_t<
      typename boost::asio::prefer_result<Executor, boost::asio::execution::outstanding_work_t::tracked_t>::type>;

 public:
  AsyncTask(Body&& body, Handler&& handler, DeviceId device)
      : body_(std::in_place, std::move(body)),
        work_(boost::asio::prefer(boost::asio::get_associated_executor(handler, boost::asio::system_executor()),
                                  boost::asio::execution::outstanding_work.tracked)),
        handler_(std::move(handler)),
        stream_(StreamId::current()),
        device_(device) {}

  Outcome operator()() noexcept {
    CallResult<R> result;
    result.run(*body_);
    body_.reset();  // before the handler can run (L6)
    const Outcome outcome = result.failed() ? Outcome::Failed : Outcome::Completed;
    complete(std::move(result));
    return outcome;
  }

  void discard(CallError::Kind why) noexcept {
    body_.reset();
    CallResult<R> result;
    result.fail(call_error(why, device_, nullptr));
    complete(std::move(result));
  }

 private:
  void complete(CallResult<R>&& result) noexcept {
    boost::asio::post(work_, [handler = std::move(handler_), result = std::move(result), stream = stream_]() mutable {
      const StreamScope scope(stream);
      std::exception_ptr error = result.error();
      if constexpr (std::is_void_v<R>) {
        std::move(handler)(error);
      } else if (error != nullptr) {
        std::move(handler)(error, std::decay_t<R>());
      } else {
        std::move(handler)(error, std::decay_t<R>(std::move(result).get()));
      }
    });
  }

  std::optional<Body> body_;
  Work work_;
  Handler handler_;
  StreamId stream_;
  DeviceId device_;
};

}  // namespace cox::detail
