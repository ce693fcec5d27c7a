#include <coxswain/servers/cuda/collective/completion_order.hpp>

#include <algorithm>
#include <utility>

namespace cox::detail {

void CompletionOrder::reserve() {
  // Pairs with the release in take(); read before taken_.
  const std::size_t expected = reserved_.load(std::memory_order_acquire);
  if (taken_.load(std::memory_order_acquire) - issued_ + expected >= ahead_.size()) {
    std::vector<bool> larger(std::max<std::size_t>(2 * ahead_.size(), 64));
    for (std::uint64_t turn = issued_ + 1; turn <= issued_ + ahead_.size(); ++turn)
      larger[turn % larger.size()] = ahead_[turn % ahead_.size()];
    ahead_.swap(larger);
  }
  reserved_.fetch_add(1, std::memory_order_relaxed);
}

void CompletionOrder::issued(std::uint64_t turn) noexcept {
  ahead_[turn % ahead_.size()] = true;
  for (std::uint64_t next = issued_ + 1; ahead_[next % ahead_.size()]; ++next) {
    ahead_[next % ahead_.size()] = false;
    issued_ = next;
  }
  while (!waiting_.empty() && waiting_.begin()->first <= issued_) {
    auto next = waiting_.extract(waiting_.begin());
    next.mapped()();
  }
}

}  // namespace cox::detail
