#include <coxswain/servers/host/stream/timeline.hpp>

#include <algorithm>
#include <utility>

namespace cox::detail {

void Timeline::raise(std::uint64_t more, std::uint64_t at_least) noexcept {
  Waiter* due = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t count = std::max(at_least, count_.load(std::memory_order_relaxed) + more);
    count_.store(count, std::memory_order_release);  // pairs with the acquire in count
    for (Waiter** link = &waiters_; *link != nullptr;) {
      Waiter& waiter = **link;
      if (waiter.value_ > count) {
        link = &waiter.next_;
      } else {
        *link = waiter.next_;
        waiter.next_ = std::exchange(due, &waiter);
      }
    }
    changed_.notify_all();
  }
  while (due != nullptr) std::exchange(due, due->next_)->reached();
}

bool Timeline::notify_at(std::uint64_t value, Waiter& waiter) noexcept {
  const std::lock_guard lock(mutex_);
  if (reached(value)) return false;
  waiter.value_ = value;
  waiter.next_ = std::exchange(waiters_, &waiter);
  return true;
}

void Timeline::wait(std::uint64_t value) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, value] { return reached(value); });
}

bool Timeline::wait_until(std::uint64_t value, std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this, value] { return reached(value); });
}

}  // namespace cox::detail
