#include <coxswain/collectives/link/stall.hpp>

#include <algorithm>

namespace cox::detail::world {

Stall::Next Stall::check(bool is_awaited, std::uint64_t received, std::chrono::nanoseconds limit, Time running_since,
                         Time now) noexcept {
  if (!is_awaited || received != received_ || since_ == Time::max()) {
    received_ = received;
    since_ = is_awaited ? now : Time::max();
    asked_.reset();
    answer_.reset();
    return Next::Nothing;
  }
  if (answer_) return now - std::max(*answer_, running_since) >= limit ? Next::IsBroken : Next::Nothing;
  if (now - std::max(since_, running_since) < limit / 2) return Next::Nothing;
  if (asked_ && now - *asked_ < limit / 4) return Next::Nothing;
  asked_ = now;
  return Next::Ask;
}

void Stall::note_sent(std::uint64_t sent, Time now) noexcept {
  if (sent > received_ && !answer_) answer_ = now;
}

}  // namespace cox::detail::world
