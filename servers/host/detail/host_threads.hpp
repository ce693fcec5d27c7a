#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <cstddef>
#include <string>
#include <thread>
#include <vector>

namespace cox::detail {

/// The threads of a host device on which its streams run, named after the device.
class HostThreads {
 public:
  using Executor = boost::asio::io_context::executor_type;

  HostThreads(const std::string& name, std::size_t count);
  HostThreads(const HostThreads&) = delete;
  HostThreads& operator=(const HostThreads&) = delete;
  /// Blocks until everything posted has run, then joins the threads. Not on one of them.
  ~HostThreads();

  [[nodiscard]] Executor executor() noexcept { return context_.get_executor(); }

 private:
  void join() noexcept;

  boost::asio::io_context context_;
  boost::asio::executor_work_guard<Executor> work_;
  std::vector<std::thread> threads_;
};

}  // namespace cox::detail
