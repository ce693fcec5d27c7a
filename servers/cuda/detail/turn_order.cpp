#include <coxswain/servers/cuda/detail/turn_order.hpp>

#include <utility>

namespace cox::detail {

void TurnOrder::issued(std::uint64_t turn) {
  if (turn != issued_ + 1) {
    ahead_.insert(turn);
    return;
  }
  issued_ = turn;
  while (!ahead_.empty() && *ahead_.begin() == issued_ + 1) {
    ahead_.erase(ahead_.begin());
    ++issued_;
  }
  while (!waiting_.empty() && waiting_.begin()->first <= issued_) {
    auto next = waiting_.extract(waiting_.begin());
    next.mapped()();
  }
}

}  // namespace cox::detail
