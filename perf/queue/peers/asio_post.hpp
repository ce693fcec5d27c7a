#pragma once

#include <coxswain/perf/queue/lane.hpp>
#include <coxswain/perf/queue/peers/promise_call.hpp>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <thread>
#include <utility>

namespace cox::perf {

/// boost::asio::post to an io_context that one thread runs. Has no bound.
class AsioPost {
 public:
  explicit AsioPost(const LaneOptions&) : thread_([this] { context_.run(); }) {}

  template <class F>
  void push(F&& f) {
    boost::asio::post(context_, std::forward<F>(f));
  }

  template <class F>
  void call(F& f) {
    call_through_promise(*this, f);
  }

  void stop() {
    guard_.reset();
    thread_.join();
  }

 private:
  boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_{context_.get_executor()};
  std::thread thread_;
};

static_assert(Lane<AsioPost>);

}  // namespace cox::perf
