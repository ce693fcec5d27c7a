#include <coxswain/tools/cox/nodes/run_connections.hpp>

#include <boost/asio/posix/stream_descriptor.hpp>

#include <algorithm>
#include <deque>

namespace cox::tools {
namespace {

using boost::asio::posix::stream_descriptor;

/// Descriptors that io_context waits for, and does not own.
class Watched {
 public:
  Watched(boost::asio::io_context& io, const std::vector<int>& descriptors) {
    for (const int descriptor : descriptors) {
      if (descriptor < 0) continue;  // as poll() does it
      all_.emplace_back(io, descriptor);
      all_.back().async_wait(stream_descriptor::wait_read, [](const boost::system::error_code&) {});
    }
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched() {
    for (stream_descriptor& each : all_) each.release();
  }

 private:
  std::deque<stream_descriptor> all_;
};

}  // namespace

void run_connections(boost::asio::io_context& io, const std::vector<int>& descriptors,
                     std::optional<std::chrono::nanoseconds> longest) {
  constexpr std::chrono::hours no_limit{1};
  if (io.stopped()) io.restart();
  {
    const Watched watched(io, descriptors);
    io.run_one_for(longest ? std::max(*longest, std::chrono::nanoseconds(0)) : no_limit);
  }
  if (io.stopped()) io.restart();
  io.poll();  // all that is ready, and the waits that were cancelled
}

}  // namespace cox::tools
