#pragma once

#include <cstdint>

namespace cox::stress {

/// How many calls, counted over all copies, between two flaws.
inline constexpr std::uint64_t flaw_period = 500;

}  // namespace cox::stress
