#include <coxswain/collectives/link/stall.hpp>

#include <algorithm>

namespace cox::detail::world {

Stall::Next Stall::check(bool is_awaited, std::uint64_t received, std::chrono::nanoseconds limit, Time running_since,
                         Time now) noexcept {
  if (!is_awaited || received != received_ || since_ == Time::max()) {
    received_ = received;
    since_ = is_awaited ? now : Time::max();
    answer_.reset();
    return Next::Nothing;
  }
  if (answer_) return now - std::max(*answer_, running_since) >= limit ? Next::IsBroken : Next::Nothing;
  return now - std::max(since_, running_since) >= limit / 2 ? Next::Ask : Next::Nothing;
}

void Stall::note_sent(std::uint64_t sent, Time now) noexcept {
  if (since_ != Time::max() && sent > received_ && !answer_) answer_ = now;
}

}  // namespace cox::detail::world
