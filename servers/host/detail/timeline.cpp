#include <coxswain/servers/host/detail/timeline.hpp>

#include <algorithm>
#include <utility>

namespace cox::detail {
namespace {

constexpr auto later = [](const auto& a, const auto& b) { return a.value > b.value; };

}  // namespace

void Timeline::advance() {
  SmallVector<UniqueFunction<void()>, 4> due;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t count = count_.load(std::memory_order_relaxed) + 1;
    count_.store(count, std::memory_order_release);  // pairs with the acquire in reached
    while (!waiting_.empty() && waiting_.front().value <= count) {
      std::pop_heap(waiting_.begin(), waiting_.end(), later);
      due.push_back(std::move(waiting_.back().callback));
      waiting_.pop_back();
    }
    changed_.notify_all();
  }
  for (UniqueFunction<void()>& callback : due) callback();
}

void Timeline::when(std::uint64_t value, UniqueFunction<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!reached(value)) {
      waiting_.push_back({value, std::move(callback)});
      std::push_heap(waiting_.begin(), waiting_.end(), later);
      return;
    }
  }
  callback();
}

void Timeline::wait(std::uint64_t value) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, value] { return reached(value); });
}

}  // namespace cox::detail
