#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
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
/// the socket takes; the rest is sent by flush(). While small items are added in quick succession, they are not sent
/// one by one, but together by the next flush(): a system call for each would take longer than all the rest. Any
/// thread.
class SendQueue {
 public:
  struct Item {
    std::vector<std::byte> head;                              ///< sent first
    std::vector<std::span<const std::byte>> data{};           ///< sent next, from where it is
    std::uint64_t key = 0;                                    ///< for withdraw(); 0: it is not withdrawn
    std::shared_ptr<const std::atomic<bool>> is_withdrawn{};  ///< if true when it is pushed, it is dropped; may be null
    /// Called when the item's memory is not read any more, because it was sent or copied; with no lock held; must not
    /// throw.
    std::function<void()> sent{};
  };
  struct Callbacks {
    /// There is more to send than the socket takes: flush() must be called when it takes more.
    std::function<void()> wait_writable;
    /// flush() must be called soon, on another thread or later on this one.
    std::function<void()> flush_later;
  };

  /// `socket` must stay open until close(). The callbacks are called with a lock held and must not call this object. If
  /// one throws, the connection is broken.
  SendQueue(int socket, Callbacks callbacks);

  /// When a small item is sent: now, by a system call of the calling thread (but see above), or by the next flush().
  enum class Small : std::uint8_t { Now, Later };
  /// Adds an item. Returns false, and drops it without calling `sent`, if the connection is closed or broken. Throws
  /// std::bad_alloc; then nothing is sent.
  bool push(Item item, Small small = Small::Now);
  /// Sends what the socket takes.
  void flush() noexcept;
  /// The items with this key are not sent; one that is partly sent is sent from a copy. Their data is not read any more
  /// after this returns, and their `sent` is not called, unless it is being called now. If there is no memory for the
  /// copy, the connection is broken.
  void withdraw(std::uint64_t key) noexcept;
  /// Bytes that the socket has taken so far.
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept { return sent_bytes_.load(std::memory_order_relaxed); }
  /// Sends nothing more. The socket is not used after this returns. Idempotent.
  void close() noexcept;
  /// The items that were not sent, of which the first may have been sent partly; nothing when called again. Call after
  /// close(), which may have been called for another reason than these items.
  [[nodiscard]] std::deque<Item> take_unsent() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  void send_some(std::unique_lock<std::mutex>& lock, std::uint64_t until) noexcept;
  void copy_small_items(std::vector<std::function<void()>>& done);
  void send_copies(std::unique_lock<std::mutex>& lock) noexcept;
  void send_first_item(std::vector<std::function<void()>>& done);
  [[nodiscard]] std::size_t count_sent(ssize_t sent, int error) noexcept;
  void call_back(const std::function<void()>& callback) noexcept;
  void break_connection() noexcept;

  const Callbacks callbacks_;
  std::mutex mutex_;
  std::condition_variable socket_is_idle_;
  int socket_;  // -1: closed or broken
  std::deque<Item> items_;
  std::size_t first_sent_ = 0;     // bytes of items_.front() that were sent
  std::vector<std::byte> copies_;  // of small items, to be sent before items_
  std::size_t copies_sent_ = 0;    // bytes of copies_ that were sent
  std::uint64_t removed_ = 0;      // items that were taken from items_ to be sent
  std::atomic<std::uint64_t> sent_bytes_{0};
  Clock::time_point last_sent_{};
  bool is_sending_ = false;   // a thread is in send_some()
  bool uses_socket_ = false;  // it sends copies_, without the lock
  bool waits_ = false;        // flush() will be called: wait_writable or flush_later was
};

}  // namespace cox::detail::world
