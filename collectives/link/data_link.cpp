#include <coxswain/collectives/link/data_link.hpp>

#include <boost/asio/post.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace cox::detail::world {
namespace {

using boost::system::error_code;

constexpr std::size_t read_at_once = std::size_t{16} * 1024;
constexpr std::size_t discard_bytes = std::size_t{64} * 1024;

}  // namespace

DataLink::DataLink(Socket socket, BytesBefore before)
    : socket_(std::move(socket)),
      before_(before),
      queue_(socket_.native_handle(),
             {.wait_writable = [this] { wait_writable(); }, .flush_later = [this] { flush_later(); }}) {
  set_options(socket_);
}

// Any thread: the socket's own thread waits, and sends.
void DataLink::wait_writable() {
  boost::asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->closed_) return;
    self->socket_.async_wait(Socket::wait_write, [self](const error_code& error) {
      if (!error) self->queue_.flush();
    });
  });
}

void DataLink::flush_later() {
  boost::asio::post(socket_.get_executor(), [self = shared_from_this()] { self->queue_.flush(); });
}

DataLink::~DataLink() { queue_.close(); }

void DataLink::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  target_ = length_;
  wait_readable();
}

void DataLink::resume() noexcept {
  is_resumed_.store(true, std::memory_order_release);
  try {
    boost::asio::post(socket_.get_executor(), [self = shared_from_this()] {
      if (!self->closed_ && self->waits_for_place_) self->read();
    });
  } catch (...) {  // no memory: the next resume() has the same effect
  }
}

void DataLink::close() noexcept {
  if (std::exchange(closed_, true)) return;
  queue_.close();
  error_code ignored;
  socket_.shutdown(Socket::shutdown_both, ignored);  // also if a forked process has a copy of the descriptor
  socket_.close(ignored);
}

void DataLink::end(const std::string& why) {
  if (closed_) return;
  const auto ended = std::move(handlers_.ended);
  close();
  if (ended) ended(why);
}

void DataLink::wait_readable() {
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const error_code& error) {
    if (self->closed_) return;
    if (error) return self->end(error.message());
    self->read();
  });
}

// Reads as much as has arrived.
void DataLink::read() {
  for (;;) {
    while (target_.empty())
      if (!read_message()) return;  // ended, or the place is not known
    if (begin_ < end_) {
      const std::size_t bytes = std::min(target_.size(), end_ - begin_);
      std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_), bytes, target_.begin());
      target_ = target_.subspan(bytes);
      begin_ += bytes;
      continue;
    }
    // What is small arrives together with what follows it.
    const bool is_small = target_.size() < read_at_once;
    if (is_small) bytes_.resize(read_at_once);
    const std::span<std::byte> into = is_small ? std::span(bytes_) : target_;
    const ssize_t got = ::recv(socket_.native_handle(), into.data(), into.size(), MSG_DONTWAIT);
    if (got == 0) return end("it has closed the connection");
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return wait_readable();
      return end(std::system_category().message(errno));
    }
    received_ += static_cast<std::uint64_t>(got);
    begin_ = 0;
    end_ = is_small ? static_cast<std::size_t>(got) : 0;
    if (!is_small) target_ = target_.subspan(static_cast<std::size_t>(got));
  }
}

// What was to be read is complete: finds what comes next. Returns false if nothing is to be read now.
bool DataLink::read_message() {
  switch (reading_) {
    case Reading::Length: {
      const std::size_t bytes = length_of(length_);
      if (bytes == 0 || bytes > max_frame) {
        end("it sent a message of " + std::to_string(bytes) + " bytes");
        return false;
      }
      frame_.resize(bytes);
      target_ = frame_;
      reading_ = Reading::Frame;
      return true;
    }
    case Reading::Frame: {
      if (waits_for_place_) return find_place();
      Message message;
      try {
        message = decode(frame_);
      } catch (const MalformedMessage& malformed) {
        end(malformed.what());
        return false;
      }
      if (auto* const inputs = std::get_if<Inputs>(&message)) {
        inputs_ = std::move(*inputs);
        return find_place();
      }
      const auto* const aborted = std::get_if<AbortedOperation>(&message);
      if (aborted == nullptr || !handlers_.aborted(*aborted)) {
        end("it sent a message that does not belong here");
        return false;
      }
      reading_ = Reading::Length;
      target_ = length_;
      return true;
    }
    case Reading::Bytes: return next_part();
  }
  return false;
}

bool DataLink::find_place() {
  for (;;) {
    is_resumed_.store(false, std::memory_order_release);
    place_ = handlers_.place(inputs_);
    waits_for_place_ = place_.kind == Place::Kind::NotYetKnown;
    if (!waits_for_place_) break;
    if (!is_resumed_.load(std::memory_order_acquire)) return false;  // resume() calls read()
  }
  if (place_.kind == Place::Kind::Wrong) {
    end("it sent inputs that the operation does not expect");
    return false;
  }
  next_part_ = 0;
  to_discard_ = 0;
  if (place_.kind == Place::Kind::Discard)
    for (const InputOfRank& rank : inputs_.ranks)
      for (const std::uint64_t bytes : rank.bytes) to_discard_ += bytes;
  reading_ = Reading::Bytes;
  return next_part();
}

bool DataLink::next_part() {
  if (place_.kind == Place::Kind::Known) {
    if (next_part_ < place_.memory.size()) {
      target_ = place_.memory[next_part_++];
      return true;
    }
    place_ = {};
    if (!handlers_.received(inputs_)) {
      end("it sent inputs that the operation does not expect");
      return false;
    }
  } else if (to_discard_ != 0) {
    discarded_.resize(discard_bytes);
    const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(to_discard_, discard_bytes));
    to_discard_ -= bytes;
    target_ = std::span(discarded_).first(bytes);
    return true;
  }
  reading_ = Reading::Length;
  target_ = length_;
  return !closed_;
}

}  // namespace cox::detail::world
