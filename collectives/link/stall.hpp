#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace cox::detail::world {

/// Finds out that a data link delivers nothing any more, although neither end has closed it: a network that drops
/// packets, for example. Silence alone does not show that, because a process sends only when its ranks have submitted.
/// So this end asks the other one, by way of the leader, how many bytes it has sent. If bytes that were sent before the
/// answer came do not arrive within the time limit, the link is broken. One thread at a time.
class Stall {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Next : std::uint8_t { Nothing, Ask, IsBroken };

  /// To be called periodically. `is_awaited`: something is awaited from the other end, and would be read if it came.
  /// `received`: bytes so far. `running_since`: when this process last went on after a pause, in which it would not
  /// have read anything. Asks after half of the limit, and again after each quarter of it until an answer comes.
  [[nodiscard]] Next check(bool is_awaited, std::uint64_t received, std::chrono::nanoseconds limit, Time running_since,
                           Time now) noexcept;
  /// The answer of the other end: how many bytes it has sent.
  void note_sent(std::uint64_t sent, Time now) noexcept;

 private:
  std::uint64_t received_ = 0;
  Time since_ = Time::max();    // nothing has arrived since then; max(): nothing is awaited
  std::optional<Time> asked_;   // when this end has asked last
  std::optional<Time> answer_;  // when it was known that more was sent than had arrived
};

}  // namespace cox::detail::world
