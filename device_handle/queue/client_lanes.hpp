#pragma once

#include <coxswain/device_handle/base/visibility.hpp>
#include <coxswain/device_handle/queue/mailbox.hpp>

#include <array>
#include <cstdint>
#include <memory>

namespace cox {

/// The calling thread's lanes, one for each mailbox that it has pushed to. They are released to their mailboxes when
/// the thread ends. Mailboxes are identified by serial numbers that are never reused.
class ClientLanes {
 public:
  /// The calling thread's lane of the mailbox with number `serial` if it is in the thread's cache, else null.
  [[nodiscard]] static Mailbox::Lane* find(std::uint64_t serial) noexcept {
    const Cached& cached = cache_[serial % cache_.size()];
    return cached.serial == serial ? cached.lane : nullptr;
  }

  /// The calling thread's lane of `mailbox`, whose number is `serial`. While the thread's thread_local objects are
  /// being destroyed, it returns a lane on loan, for one push. Does not block. Throws std::bad_alloc.
  [[nodiscard]] static Mailbox::Lane& find_or_acquire(std::uint64_t serial, const std::shared_ptr<Mailbox>& mailbox);

  /// The serial number of a new mailbox.
  [[nodiscard]] static std::uint64_t next_serial() noexcept;

 private:
  struct Cached {
    std::uint64_t serial;  // 0: none
    Mailbox::Lane* lane;
  };

  struct Lease;
  struct Leases;

  static Mailbox::Lane& acquire(Mailbox& mailbox);

  COX_VISIBILITY_DEFAULT static inline constinit thread_local std::array<Cached, 16> cache_{};
};

}  // namespace cox
