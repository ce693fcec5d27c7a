#pragma once

#include <coxswain/device_handle/base/stream_id.hpp>

#include <boost/asio/execution/executor.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/require.hpp>

#include <utility>

namespace cox {

/// An Asio executor that runs everything on `Inner`, with one StreamId as StreamId::current(). A coroutine spawned on
/// it keeps its stream across every co_await, whatever it awaits and whichever thread it resumes on (law L9):
///
///     co_spawn(cox::StreamExecutor(io.get_executor(), cox::StreamId::allocate()), work(), detached);
template <class Inner>
class StreamExecutor {
 public:
  StreamExecutor(Inner inner, StreamId stream) noexcept : inner_(std::move(inner)), stream_(stream) {}

  [[nodiscard]] StreamId stream() const noexcept { return stream_; }

  template <class F>
  void execute(F&& f) const {
    inner_.execute([stream = stream_, f = std::decay_t<F>(std::forward<F>(f))]() mutable {
      const StreamScope scope(stream);
      std::move(f)();
    });
  }

  template <class Property>
    requires boost::asio::can_query<const Inner&, Property>::value
  decltype(auto) query(const Property& property) const {
    return boost::asio::query(inner_, property);
  }

  template <class Property>
    requires boost::asio::can_require<const Inner&, Property>::value
  auto require(const Property& property) const {
    auto inner = boost::asio::require(inner_, property);
    return StreamExecutor<decltype(inner)>(std::move(inner), stream_);
  }

  friend bool operator==(const StreamExecutor&, const StreamExecutor&) noexcept = default;

 private:
  Inner inner_;
  StreamId stream_;
};

}  // namespace cox
