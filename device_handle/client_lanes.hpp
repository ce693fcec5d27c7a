#pragma once

#include <coxswain/device_handle/mailbox.hpp>

#include <array>
#include <cstdint>
#include <memory>

namespace cox {

/// The calling thread's lanes, one for each mailbox it has pushed to. They go back to their mailboxes when the thread
/// ends. Mailboxes are told apart by a serial number that is never used twice.
class ClientLanes {
 public:
  /// The calling thread's lane of the mailbox numbered `serial`, which `mailbox()` returns as a std::shared_ptr. Null
  /// while the thread's thread_local objects are being destroyed. Does not block.
  template <class GetMailbox>
  [[nodiscard]] static Mailbox::Lane* of(std::uint64_t serial, GetMailbox&& mailbox) {
    const Cached& cached = cache_[serial % cache_.size()];
    if (cached.serial == serial) [[likely]]
      return cached.lane;
    return find_or_acquire(serial, mailbox());
  }

  /// A lane of `mailbox` marked as the calling thread's, which must release it.
  [[nodiscard]] static Mailbox::Lane& acquire(Mailbox& mailbox);

  /// A number for a new mailbox.
  [[nodiscard]] static std::uint64_t next_serial() noexcept;

 private:
  struct Cached {
    std::uint64_t serial;  // 0: none
    Mailbox::Lane* lane;
  };

  struct Lease;
  struct Leases;

  static Mailbox::Lane* find_or_acquire(std::uint64_t serial, std::shared_ptr<Mailbox> mailbox);

  static inline constinit thread_local std::array<Cached, 16> cache_{};
};

}  // namespace cox
