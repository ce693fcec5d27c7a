#include <coxswain/device_handle/queue/client_lanes.hpp>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

namespace cox {

struct ClientLanes::Lease {
  std::uint64_t serial;
  std::weak_ptr<Mailbox> mailbox;
  Mailbox::Lane* lane;
};

namespace {
constinit thread_local bool ending = false;
}

// The lanes of the calling thread, released when the thread ends.
struct ClientLanes::Leases {
  std::vector<Lease> all;

  Leases() = default;
  Leases(const Leases&) = delete;
  Leases& operator=(const Leases&) = delete;
  ~Leases() {
    ending = true;
    cache_ = {};
    for (const Lease& lease : all) {
      if (const auto mailbox = lease.mailbox.lock()) mailbox->release_lane(*lease.lane);
    }
  }
};

std::uint64_t ClientLanes::next_serial() noexcept {
  static constinit std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);  // relaxed: only uniqueness matters
}

Mailbox::Lane& ClientLanes::acquire(Mailbox& mailbox) {
  Mailbox::Lane& lane = mailbox.acquire_lane();
  lane.owner.store(this_thread_number(), std::memory_order_relaxed);
  return lane;
}

Mailbox::Lane& ClientLanes::find_or_acquire(std::uint64_t serial, const std::shared_ptr<Mailbox>& mailbox) {
  Cached& cached = cache_[serial % cache_.size()];
  if (ending) {
    cached = {};
    Mailbox::Lane& lane = acquire(*mailbox);
    lane.on_loan = true;
    return lane;
  }
  thread_local Leases leases;
  auto found = std::ranges::find(leases.all, serial, &Lease::serial);
  if (found == leases.all.end()) {
    std::erase_if(leases.all, [](const Lease& lease) { return lease.mailbox.expired(); });
    leases.all.reserve(leases.all.size() + 1);  // must not throw after the lane has been acquired
    leases.all.push_back({serial, mailbox, &acquire(*mailbox)});
    found = std::prev(leases.all.end());
  }
  cached = {serial, found->lane};
  return *found->lane;
}

}  // namespace cox
