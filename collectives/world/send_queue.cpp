#include <coxswain/collectives/world/send_queue.hpp>

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <utility>

namespace cox::detail::world {
namespace {

constexpr std::size_t most_pieces = 64;  // of one system call

std::size_t bytes_of(const SendQueue::Item& item) noexcept {
  std::size_t bytes = item.head.size();
  for (const auto& part : item.data) bytes += part.size();
  return bytes;
}

using Pieces = std::array<iovec, most_pieces>;

// Adds what follows the first `skip` bytes of the item.
void add(const SendQueue::Item& item, std::size_t skip, Pieces& pieces, std::size_t& count) noexcept {
  const auto add_one = [&](std::span<const std::byte> part) {
    const std::size_t skipped = std::min(skip, part.size());
    skip -= skipped;
    part = part.subspan(skipped);
    // sendmsg() does not write what it is given.
    if (!part.empty() && count < pieces.size())
      pieces[count++] = {const_cast<std::byte*>(part.data()),
                         part.size()};  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  };
  add_one(item.head);
  for (const auto& part : item.data) add_one(part);
}

}  // namespace

SendQueue::SendQueue(int socket, std::function<void()> wait_writable)
    : wait_writable_(std::move(wait_writable)), socket_(socket) {}

bool SendQueue::push(Item item) {
  std::unique_lock lock(mutex_);
  if (socket_ < 0) return false;
  if (item.is_withdrawn && *item.is_withdrawn) return true;
  items_.push_back(std::move(item));
  if (!waits_) send_some(lock);
  return true;
}

void SendQueue::flush() noexcept {
  std::unique_lock lock(mutex_);
  waits_ = false;
  send_some(lock);
}

// Releases the lock during the calls of `sent`.
void SendQueue::send_some(std::unique_lock<std::mutex>& lock) noexcept {
  while (socket_ >= 0 && !items_.empty() && !waits_) {
    Pieces pieces{};
    std::size_t count = 0;
    std::size_t skip = first_sent_;
    for (const Item& item : items_) {
      add(item, std::exchange(skip, 0), pieces, count);
      if (count == pieces.size()) break;
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t sent = count == 0 ? 0 : ::sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        waits_ = true;
        try {
          wait_writable_();
        } catch (...) {  // no memory to wait
          break_connection();
        }
        return;
      }
      return break_connection();
    }
    first_sent_ += static_cast<std::size_t>(sent);
    while (!items_.empty() && first_sent_ >= bytes_of(items_.front())) {
      first_sent_ -= bytes_of(items_.front());
      const Item done = std::move(items_.front());
      items_.pop_front();
      if (!done.sent) continue;
      lock.unlock();
      done.sent();
      lock.lock();
    }
  }
}

// The readers of both ends then find that the connection has ended.
void SendQueue::break_connection() noexcept {
  static_cast<void>(::shutdown(socket_, SHUT_RDWR));
  socket_ = -1;
}

void SendQueue::withdraw(std::uint64_t key) noexcept {
  const std::lock_guard lock(mutex_);
  if (!items_.empty() && items_.front().key == key && first_sent_ != 0) {
    Item& first = items_.front();
    first.sent = nullptr;
    first.key = 0;
    try {
      std::vector<std::byte> copy = first.head;
      for (const auto& part : first.data) copy.insert(copy.end(), part.begin(), part.end());
      first.head = std::move(copy);
      first.data.clear();
    } catch (const std::bad_alloc&) {
      break_connection();
      return items_.clear();
    }
  }
  std::erase_if(items_, [key](const Item& item) { return item.key == key; });
}

std::deque<SendQueue::Item> SendQueue::close() noexcept {
  const std::lock_guard lock(mutex_);
  socket_ = -1;
  return std::exchange(items_, {});
}

}  // namespace cox::detail::world
