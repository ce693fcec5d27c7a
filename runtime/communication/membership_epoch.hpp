#pragma once

#include <compare>
#include <cstdint>

namespace cox {

/// The period in the process between two changes of communicators: a new epoch begins whenever a device leaves its
/// communicators, and whenever one is replaced (ensure_init_collective). A call that is carried out later, such as a
/// replay, records the epoch in which it was made. If there was such a change since, the call was meant for a
/// communicator that no longer exists (L16). Any thread.
struct MembershipEpoch {
  std::uint64_t value = 0;

  /// The current epoch.
  [[nodiscard]] static MembershipEpoch current() noexcept;
  /// Begins the next epoch and returns it. A call that a thread makes after it has seen the effects of this belongs to
  /// that epoch or a later one.
  static MembershipEpoch begin_next() noexcept;

  friend auto operator<=>(const MembershipEpoch&, const MembershipEpoch&) = default;
};

}  // namespace cox
