#include <coxswain/collectives/link/send_queue.hpp>

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <limits>
#include <new>
#include <span>
#include <utility>

namespace cox::detail::world {
namespace {

constexpr std::size_t most_pieces = 64;   // of one system call
constexpr std::size_t small_item = 4096;  // At most so many bytes: it is copied, so that several are sent together.
constexpr std::size_t most_copied = 65536;
constexpr std::chrono::microseconds quick_succession{15};  // about the time that a system call takes, with its effects

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

SendQueue::SendQueue(int socket, Callbacks callbacks) : callbacks_(std::move(callbacks)), socket_(socket) {}

bool SendQueue::push(Item item, Small small) {
  std::unique_lock lock(mutex_);
  if (socket_ < 0) return false;
  if (item.is_withdrawn && *item.is_withdrawn) return true;
  const bool is_small = bytes_of(item) <= small_item;
  items_.push_back(std::move(item));
  if (is_sending_ || waits_) return true;
  if (is_small && (small == Small::Later || Clock::now() - last_sent_ < quick_succession)) {
    call_back(callbacks_.flush_later);
  } else {
    send_some(lock, removed_ + items_.size());
  }
  return true;
}

void SendQueue::flush() noexcept {
  std::unique_lock lock(mutex_);
  waits_ = false;
  if (!is_sending_) send_some(lock, std::numeric_limits<std::uint64_t>::max());
}

// Leaves the rest to flush() when so many items have been taken: the thread that adds one does not send those of
// others. Releases the lock during the calls of `sent`, and while it sends copies. Other threads only add items
// meanwhile.
void SendQueue::send_some(std::unique_lock<std::mutex>& lock, std::uint64_t until) noexcept {
  is_sending_ = true;
  while (socket_ >= 0 && !waits_ && (!items_.empty() || !copies_.empty())) {
    std::vector<std::function<void()>> done;
    try {
      if (copies_.empty()) copy_small_items(done);
      if (copies_.empty())
        send_first_item(done);
      else
        send_copies(lock);
    } catch (...) {  // no memory for the copies
      break_connection();
    }
    if (!done.empty()) {
      lock.unlock();
      for (const auto& sent : done)
        if (sent) sent();
      lock.lock();
    }
    if (removed_ >= until && socket_ >= 0 && !waits_ && !items_.empty()) call_back(callbacks_.flush_later);
  }
  is_sending_ = false;
  last_sent_ = Clock::now();
}

// Copies those small items that are next.
void SendQueue::copy_small_items(std::vector<std::function<void()>>& done) {
  while (!items_.empty() && first_sent_ == 0) {
    Item& item = items_.front();
    const std::size_t bytes = bytes_of(item);
    if (bytes > small_item || copies_.size() + bytes > most_copied) return;
    done.emplace_back();
    copies_.reserve(copies_.size() + bytes);
    copies_.insert(copies_.end(), item.head.begin(), item.head.end());
    for (const auto& part : item.data) copies_.insert(copies_.end(), part.begin(), part.end());
    done.back() = std::move(item.sent);
    items_.pop_front();
    ++removed_;
  }
}

void SendQueue::send_copies(std::unique_lock<std::mutex>& lock) noexcept {
  const std::span<const std::byte> rest = std::span(copies_).subspan(copies_sent_);
  const int socket = socket_;
  uses_socket_ = true;
  lock.unlock();
  const ssize_t sent = ::send(socket, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  const int error = errno;
  lock.lock();
  uses_socket_ = false;
  socket_is_idle_.notify_all();
  copies_sent_ += count_sent(sent, error);
  if (copies_sent_ < copies_.size()) return;
  copies_.clear();
  copies_sent_ = 0;
}

void SendQueue::send_first_item(std::vector<std::function<void()>>& done) {
  Pieces pieces{};
  std::size_t count = 0;
  Item& item = items_.front();
  add(item, first_sent_, pieces, count);
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  const ssize_t sent = count == 0 ? 0 : ::sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  first_sent_ += count_sent(sent, errno);
  if (first_sent_ < bytes_of(item)) return;
  done.push_back(std::move(item.sent));
  items_.pop_front();
  ++removed_;
  first_sent_ = 0;
}

// How many bytes a call has sent; waits, or breaks the connection, if it has failed.
std::size_t SendQueue::count_sent(ssize_t sent, int error) noexcept {
  if (sent >= 0) {
    sent_bytes_.fetch_add(static_cast<std::uint64_t>(sent), std::memory_order_relaxed);
    return static_cast<std::size_t>(sent);
  }
  if (error == EAGAIN || error == EWOULDBLOCK)
    call_back(callbacks_.wait_writable);
  else if (error != EINTR)
    break_connection();
  return 0;
}

void SendQueue::call_back(const std::function<void()>& callback) noexcept {
  waits_ = true;
  try {
    callback();
  } catch (...) {  // no memory
    break_connection();
  }
}

// The readers of both ends then find that the connection has ended.
void SendQueue::break_connection() noexcept {
  if (socket_ >= 0) static_cast<void>(::shutdown(socket_, SHUT_RDWR));
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
      items_.pop_front();  // the others fail when the connection is lost
    }
  }
  std::erase_if(items_, [key](const Item& item) { return item.key == key; });
}

void SendQueue::close() noexcept {
  std::unique_lock lock(mutex_);
  socket_ = -1;
  socket_is_idle_.wait(lock, [this] { return !uses_socket_; });
}

std::deque<SendQueue::Item> SendQueue::take_unsent() noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(items_, {});
}

}  // namespace cox::detail::world
