#include <coxswain/tools/cox/nodes/connection_wait.hpp>

#include <coxswain/runtime/socket/file_descriptor.hpp>

#include <sys/epoll.h>
#include <algorithm>
#include <cerrno>
#include <system_error>

namespace cox::tools {
namespace {

using boost::asio::posix::stream_descriptor;

/// Waits for an epoll descriptor that has these others, until its end.
class Watch {
 public:
  Watch(stream_descriptor& epoll, const std::vector<int>& descriptors) : epoll_(epoll), descriptors_(descriptors) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() {
    for (const int descriptor : descriptors_)  // fails if it was not added
      static_cast<void>(epoll_ctl(epoll_.native_handle(), EPOLL_CTL_DEL, descriptor, nullptr));
    boost::system::error_code ignored;
    epoll_.cancel(ignored);
  }

  void begin() {
    for (const int descriptor : descriptors_) {
      epoll_event readable{.events = EPOLLIN, .data = {.fd = descriptor}};
      if (descriptor >= 0 &&
          epoll_ctl(epoll_.native_handle(), EPOLL_CTL_ADD, descriptor, &readable) != 0)  // negative: as poll()
        throw std::system_error(errno, std::generic_category(), "cannot wait for a descriptor");
    }
    epoll_.async_wait(stream_descriptor::wait_read, [](const boost::system::error_code&) {});
  }

 private:
  stream_descriptor& epoll_;
  const std::vector<int>& descriptors_;
};

}  // namespace

ConnectionWait::ConnectionWait(boost::asio::io_context& io) : io_(io), watched_(io) {
  FileDescriptor made(epoll_create1(EPOLL_CLOEXEC));
  if (!made.is_open()) throw std::system_error(errno, std::generic_category(), "epoll");
  boost::system::error_code failed;
  watched_.assign(made.get(), failed);
  if (failed) throw std::system_error(failed, "epoll");
  static_cast<void>(made.release());
}

void ConnectionWait::wait(const std::vector<int>& descriptors, std::optional<std::chrono::nanoseconds> longest) {
  constexpr std::chrono::hours no_limit{1};
  if (io_.stopped()) io_.restart();
  {
    Watch watch(watched_, descriptors);
    watch.begin();
    io_.run_one_for(longest ? std::max(*longest, std::chrono::nanoseconds(0)) : no_limit);
  }
  if (io_.stopped()) io_.restart();
  io_.poll();  // all that is ready, and the wait that was cancelled
}

}  // namespace cox::tools
