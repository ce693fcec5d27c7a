#pragma once

#include <compare>
#include <cstdint>

namespace cox {

/// A time in the process between two departures: a new epoch begins whenever a device leaves its communicators. A call
/// that is carried out later, as a replay is, notes the epoch that it was made in: if a device has left since, the call
/// was meant for a communicator that is gone (L16). Any thread.
struct MembershipEpoch {
  std::uint64_t value = 0;

  /// The present one.
  [[nodiscard]] static MembershipEpoch current() noexcept;
  /// Begins the next one and returns it. What a thread calls after it has seen the effects of this is of that epoch or
  /// a later one.
  static MembershipEpoch begin_next() noexcept;

  friend auto operator<=>(const MembershipEpoch&, const MembershipEpoch&) = default;
};

}  // namespace cox
