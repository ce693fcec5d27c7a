#include <coxswain/collectives/link/frame_link.hpp>

#include <coxswain/collectives/link/child_processes.hpp>

#include <boost/asio/post.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace cox::detail::world {

namespace {

using boost::system::error_code;

constexpr std::size_t room_for_messages = std::size_t{16} * 1024;

}  // namespace

void set_options(boost::asio::ip::tcp::socket& socket) {
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  keep_from_children(socket.native_handle());
}

std::vector<std::byte> frame_of(std::span<const std::byte> encoded) {
  std::vector<std::byte> frame;
  frame.reserve(length_bytes + encoded.size());
  append_frame(encoded, frame);
  return frame;
}

void append_frame(std::span<const std::byte> encoded, std::vector<std::byte>& frames) {
  for (std::size_t i = 0; i < length_bytes; ++i)
    frames.push_back(static_cast<std::byte>((encoded.size() >> (8 * i)) & 0xffU));
  frames.insert(frames.end(), encoded.begin(), encoded.end());
}

std::size_t length_of(std::span<const std::byte, length_bytes> bytes) noexcept {
  std::size_t length = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) length |= std::to_integer<std::size_t>(bytes[i]) << (8 * i);
  return length;
}

FrameLink::FrameLink(Socket socket, std::size_t largest)
    : socket_(std::move(socket)),
      queue_(socket_.native_handle(),
             {.wait_writable = [this] { wait_writable(); }, .flush_later = [this] { flush_later(); }}),
      largest_(largest) {
  set_options(socket_);
}

// Any thread: the socket's own thread waits, and sends.
void FrameLink::wait_writable() {
  boost::asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->closed_) return;
    self->socket_.async_wait(Socket::wait_write, [self](const error_code& error) {
      if (!error) self->queue_.flush();
    });
  });
}

void FrameLink::flush_later() {
  boost::asio::post(socket_.get_executor(), [self = shared_from_this()] { self->queue_.flush(); });
}

FrameLink::~FrameLink() { queue_.close(); }

void FrameLink::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  wait_readable();
}

void FrameLink::restart(Handlers handlers) {
  // The former ones may be running, so they are destroyed later.
  boost::asio::post(socket_.get_executor(), [former = std::exchange(handlers_, std::move(handlers))] {});
  largest_ = max_frame;
}

void FrameLink::send(std::span<const std::byte> encoded) {
  static_cast<void>(queue_.push({.head = frame_of(encoded)}));
}

void FrameLink::send_later(std::vector<std::byte> frames) {
  static_cast<void>(queue_.push({.head = std::move(frames)}, SendQueue::Small::Later));
}

void FrameLink::wait_readable() {
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const error_code& error) {
    if (self->closed_) return;
    if (error) return self->end(error.message());
    self->read();
  });
}

// Reads what has arrived, and passes on the messages that are complete.
void FrameLink::read() {
  if (bytes_.size() - end_ < room_for_messages) bytes_.resize(end_ + room_for_messages);
  const ssize_t got = ::recv(socket_.native_handle(), bytes_.data() + end_, bytes_.size() - end_, MSG_DONTWAIT);
  if (got == 0) return end("it has closed the connection");
  if (got < 0) {
    if (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) return wait_readable();
    return end(std::system_category().message(errno));
  }
  end_ += static_cast<std::size_t>(got);
  heard_ = std::chrono::steady_clock::now();
  while (!closed_) {
    const auto rest = std::span<const std::byte>(bytes_).subspan(begin_, end_ - begin_);
    if (rest.size() < length_bytes) break;
    const std::size_t bytes = length_of(rest.first<length_bytes>());
    if (bytes == 0 || bytes > largest_) return end("it sent a message of " + std::to_string(bytes) + " bytes");
    if (rest.size() - length_bytes < bytes) break;
    begin_ += length_bytes + bytes;
    handlers_.received(rest.subspan(length_bytes, bytes));
  }
  if (closed_) return;
  // The beginning of a message remains.
  std::move(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_), bytes_.begin() + static_cast<std::ptrdiff_t>(end_),
            bytes_.begin());
  end_ -= std::exchange(begin_, 0);
  wait_readable();
}

void FrameLink::end(const std::string& why) {
  const auto ended = std::move(handlers_.ended);
  close();
  if (ended) ended(why);
}

void FrameLink::close() noexcept {
  if (std::exchange(closed_, true)) return;
  queue_.flush();
  queue_.close();
  error_code ignored;
  socket_.shutdown(Socket::shutdown_both, ignored);  // also if a forked process has a copy of the descriptor
  socket_.close(ignored);
}

}  // namespace cox::detail::world
