#include <coxswain/collectives/world/control_link.hpp>

#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>

#include <cstdint>
#include <utility>

namespace cox::detail::world {

using boost::system::error_code;

void set_options(boost::asio::ip::tcp::socket& socket) {
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
}

std::vector<std::byte> frame_of(const Message& message) {
  const std::vector<std::byte> encoded = encode(message);
  std::vector<std::byte> frame;
  frame.reserve(4 + encoded.size());
  for (std::size_t i = 0; i < 4; ++i) frame.push_back(static_cast<std::byte>((encoded.size() >> (8 * i)) & 0xffU));
  frame.insert(frame.end(), encoded.begin(), encoded.end());
  return frame;
}

std::size_t length_of(const std::array<std::byte, 4>& bytes) noexcept {
  std::size_t length = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) length |= std::to_integer<std::size_t>(bytes[i]) << (8 * i);
  return length;
}

ControlLink::ControlLink(Socket socket, std::size_t largest)
    : socket_(std::move(socket)),
      queue_(socket_.native_handle(),
             [this] {
               // Any thread: the socket's own thread waits.
               boost::asio::post(socket_.get_executor(), [self = shared_from_this()] {
                 if (self->closed_) return;
                 self->socket_.async_wait(Socket::wait_write, [self](const error_code& error) {
                   if (!error) self->queue_.flush();
                 });
               });
             }),
      largest_(largest) {
  set_options(socket_);
}

ControlLink::~ControlLink() { static_cast<void>(queue_.close()); }

void ControlLink::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  read_length();
}

void ControlLink::restart(Handlers handlers) {
  largest_ = max_frame;
  // The former ones may be running, so they are destroyed later.
  boost::asio::post(socket_.get_executor(), [former = std::exchange(handlers_, std::move(handlers))] {});
}

void ControlLink::send(const Message& message) { static_cast<void>(queue_.push({.head = frame_of(message)})); }

void ControlLink::read_length() {
  boost::asio::async_read(socket_, boost::asio::buffer(length_),
                          [self = shared_from_this()](const error_code& error, std::size_t) {
                            if (self->closed_) return;
                            if (error) return self->end(error.message());
                            const std::size_t bytes = length_of(self->length_);
                            if (bytes == 0 || bytes > self->largest_)
                              return self->end("it sent a message of " + std::to_string(bytes) + " bytes");
                            self->read_frame(bytes);
                          });
}

void ControlLink::read_frame(std::size_t bytes) {
  frame_.resize(bytes);
  boost::asio::async_read(socket_, boost::asio::buffer(frame_),
                          [self = shared_from_this()](const error_code& error, std::size_t) {
                            if (self->closed_) return;
                            if (error) return self->end(error.message());
                            self->heard_ = std::chrono::steady_clock::now();
                            Message message;
                            try {
                              message = decode(self->frame_);
                            } catch (const MalformedMessage& malformed) {
                              return self->end(malformed.what());
                            }
                            self->handlers_.received(std::move(message));
                            if (!self->closed_) self->read_length();
                          });
}

void ControlLink::end(const std::string& why) {
  const auto ended = std::move(handlers_.ended);
  close();
  if (ended) ended(why);
}

void ControlLink::close() noexcept {
  if (std::exchange(closed_, true)) return;
  static_cast<void>(queue_.close());
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace cox::detail::world
