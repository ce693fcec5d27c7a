#pragma once

#include <algorithm>
#include <cstddef>

namespace cox::detail {

/// How many operations of a sequence a process may have asked the leader for that are neither released nor refused, if
/// the leader has this `collectives.max_ahead`. The leader expels a process that asks for more.
[[nodiscard]] constexpr std::size_t most_asked(std::size_t max_ahead_of_leader) noexcept {
  return std::max<std::size_t>(4096, 2 * max_ahead_of_leader);
}

}  // namespace cox::detail
