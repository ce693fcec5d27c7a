#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace cox {

/// What a submit does when the device's queue is at its capacity.
enum class QueuePolicy : std::uint8_t {
  Grow,   ///< Enqueues anyway: the capacity is not enforced.
  Block,  ///< Waits until there is room. submit_async and threads that hold a device up (HeldNode) enqueue anyway.
  Fail,   ///< Throws CallError QueueFull; submit_async completes its token with this error.
};

inline constexpr std::array<std::string_view, 3> queue_policy_names{"grow", "block", "fail"};
static_assert(queue_policy_names.size() == static_cast<std::size_t>(QueuePolicy::Fail) + 1);

}  // namespace cox
