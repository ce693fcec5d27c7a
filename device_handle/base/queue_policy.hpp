#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace cox {

/// What a submit does when its device's queue holds as many closures as its capacity.
enum class QueuePolicy : std::uint8_t {
  Grow,   ///< Queues anyway: the capacity is not enforced.
  Block,  ///< Waits until there is room. submit_async and threads that hold a device up (HeldNode) queue anyway.
  Fail,   ///< Throws CallError QueueFull; submit_async completes its token with it.
};

inline constexpr std::array<std::string_view, 3> queue_policy_names{"grow", "block", "fail"};
static_assert(queue_policy_names.size() == static_cast<std::size_t>(QueuePolicy::Fail) + 1);

}  // namespace cox
