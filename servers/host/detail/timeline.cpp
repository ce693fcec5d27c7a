#include <coxswain/servers/host/detail/timeline.hpp>

#include <utility>

namespace cox::detail {

void Timeline::advance() noexcept {
  Waiter* due = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t count = count_.load(std::memory_order_relaxed) + 1;
    count_.store(count, std::memory_order_release);  // pairs with the acquire in count
    for (Waiter** link = &waiting_; *link != nullptr;) {
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

bool Timeline::tell(std::uint64_t value, Waiter& waiter) noexcept {
  const std::lock_guard lock(mutex_);
  if (reached(value)) return false;
  waiter.value_ = value;
  waiter.next_ = std::exchange(waiting_, &waiter);
  return true;
}

void Timeline::wait(std::uint64_t value) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, value] { return reached(value); });
}

}  // namespace cox::detail
