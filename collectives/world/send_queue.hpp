#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace cox::detail::world {

/// What is still to be sent on a non-blocking socket, in order. The thread that adds something sends at once as much as
/// the socket takes; the rest is sent by flush(). Any thread.
class SendQueue {
 public:
  struct Item {
    std::vector<std::byte> head;                              ///< sent first
    std::vector<std::span<const std::byte>> data{};           ///< sent next, from where it is
    std::uint64_t key = 0;                                    ///< for withdraw(); 0: it is not withdrawn
    std::shared_ptr<const std::atomic<bool>> is_withdrawn{};  ///< if true when it is pushed, it is dropped; may be null
    std::function<void()> sent{};  ///< called when all was sent, with no lock held; must not throw
  };

  /// `socket` must stay open until close(). `wait_writable` is called when there is more to send than the socket takes:
  /// flush() must be called when it takes more. It must not call this object; if it throws, the connection is broken.
  SendQueue(int socket, std::function<void()> wait_writable);

  /// Adds an item. Returns false, and drops it without calling `sent`, if the connection is closed or broken. Throws
  /// std::bad_alloc; then nothing is sent.
  bool push(Item item);
  /// Sends what the socket takes.
  void flush() noexcept;
  /// The items with this key are not sent; one that is partly sent is sent from a copy. Their data is not read any more
  /// after this returns, and their `sent` is not called, unless it is being called now. If there is no memory for the
  /// copy, the connection is broken.
  void withdraw(std::uint64_t key) noexcept;
  /// Sends nothing more. The socket is not used after this returns. Returns the items that were not sent, of which the
  /// first may have been sent partly.
  std::deque<Item> close() noexcept;

 private:
  void send_some(std::unique_lock<std::mutex>& lock) noexcept;
  void break_connection() noexcept;

  const std::function<void()> wait_writable_;
  std::mutex mutex_;
  int socket_;  // -1: closed or broken
  std::deque<Item> items_;
  std::size_t first_sent_ = 0;  // bytes of items_.front() that were sent
  bool waits_ = false;          // wait_writable_ was called, and flush() not yet
};

}  // namespace cox::detail::world
