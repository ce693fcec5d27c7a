#pragma once

#include <coxswain/device_handle/queue/lane.hpp>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace cox {

/// Every lane that a mailbox ever had. Lanes of ended threads are reused; none is destroyed before the mailbox.
///
/// The list of attended lanes grows on the device thread, which could not handle std::bad_alloc. So the thread that
/// makes a lane allocates the memory of that list: the lanes with the numbers 64, 128, 256, ... each hold memory for
/// twice as many entries.
template <class Platform>
class LaneList {
  using Lane = cox::Lane<Platform>;
  using Attended = typename Lane::Attended;

 public:
  /// Acquires a lane for the calling thread alone, until release(). Any thread; lock-free. Throws std::bad_alloc.
  [[nodiscard]] Lane& acquire() {
    for (Lane* lane = newest(); lane != nullptr; lane = lane->next) {
      // acquire: pairs with release(), the former owner's producer half
      if (lane->owned.load(std::memory_order_relaxed) == 0 && lane->owned.exchange(1, std::memory_order_acquire) == 0)
        return *lane;
    }
    return link(std::make_unique<Lane>());
  }
  void release(Lane& lane) noexcept { lane.owned.store(0, std::memory_order_release); }  // pairs with acquire()

  /// The lane that was made last; Lane::next leads to all others. Any thread.
  [[nodiscard]] Lane* newest() const noexcept { return newest_.load(std::memory_order_acquire); }
  /// The number of lanes. Any thread.
  [[nodiscard]] std::size_t size() const noexcept {
    const Lane* const lane = newest();
    return lane == nullptr ? 0 : lane->number;
  }

  /// Reserves the memory of the list for the first lanes. Throws std::bad_alloc.
  static void reserve(std::vector<Attended>& attended) { attended.reserve(lanes_in_list); }
  /// Makes room in the list for `count` lanes, all of which exist. Does not allocate. Device thread.
  void make_room(std::vector<Attended>& attended, std::size_t count) noexcept {
    if (count <= attended.capacity()) return;
    Lane* lane = newest();
    while (lane->list_space.capacity() < count) lane = lane->next;
    lane->list_space.assign(attended.begin(), attended.end());
    attended.swap(lane->list_space);
  }

  /// Destroys the lanes; every item has been popped, and no thread uses them any more.
  void destroy(typename Platform::BlockPool& pool) noexcept {
    for (Lane* lane = newest_.load(std::memory_order_relaxed); lane != nullptr;) {
      lane->free_segments(pool);
      delete std::exchange(lane, lane->next);
    }
  }

 private:
  static constexpr std::size_t lanes_in_list = 64;  // reserved from the start

  Lane& link(std::unique_ptr<Lane> lane) {
    lane->next = newest();
    do {
      lane->number = lane->next == nullptr ? 1 : lane->next->number + 1;
      if (lane->number >= lanes_in_list && std::has_single_bit(lane->number))
        lane->list_space.reserve(2 * lane->number);
      // release: pairs with newest()
    } while (
        !newest_.compare_exchange_weak(lane->next, lane.get(), std::memory_order_acq_rel, std::memory_order_acquire));
    return *lane.release();
  }

  typename Platform::template atomic<Lane*> newest_{nullptr};
};

}  // namespace cox
