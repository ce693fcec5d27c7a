#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <chrono>
#include <optional>
#include <vector>

namespace cox::tools {

/// Waits for the connections of an io_context, and for other descriptors. One thread, which also runs the io_context.
class ConnectionWait {
 public:
  /// `io` must outlive this object. Throws std::system_error.
  explicit ConnectionWait(boost::asio::io_context& io);

  /// As wait_readable(), but also runs the handlers of the io_context, and returns when it has run any. Opens no
  /// descriptor. Throws what the handlers throw, and std::system_error.
  void wait(const std::vector<int>& descriptors, std::optional<std::chrono::nanoseconds> longest);

 private:
  boost::asio::io_context& io_;
  // An epoll descriptor, which has the others during a wait. A descriptor that the io_context itself waits for would be
  // set to O_NONBLOCK, and stay so.
  boost::asio::posix::stream_descriptor watched_;
};

}  // namespace cox::tools
