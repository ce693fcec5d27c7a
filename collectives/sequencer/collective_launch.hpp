#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>

#include <cstdint>
#include <exception>
#include <memory>

namespace cox {

/// What one rank's submission is granted: its launch, or a refusal.
struct LaunchGrant {
  std::uint64_t sequence = 0;            ///< Which operation of its communicator, counted from 1.
  std::uint64_t order = 0;               ///< Its place in the one order of all communicators; 0 if refused.
  std::exception_ptr refusal = nullptr;  ///< Why it must not be launched: a CollectiveError; nullptr: launch it.
  /// What rank 0 handed in (CollectiveSubmission::shared). Null if it is refused before rank 0 came.
  std::shared_ptr<void> shared = nullptr;
};

/// What a rank hands in with its request: puts the operation on its device, or passes the refusal on; the grant is its
/// own. Called exactly once (L2), by any thread (by its device's launch thread, if it is for that), with no lock held,
/// and destroyed right after. The launches of one device are called one after the other, in the order in which the
/// device must have them: so it may post to the device thread, but must neither block nor wait. If it throws, its
/// communicator is aborted: the other ranks would wait for it in vain.
using CollectiveLaunch = UniqueFunction<void(LaunchGrant&&)>;

}  // namespace cox
