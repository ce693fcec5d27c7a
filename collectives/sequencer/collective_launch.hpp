#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>

#include <cstdint>
#include <exception>
#include <memory>

namespace cox {

/// The result of one rank's submission: permission to launch the operation, or a refusal.
struct LaunchGrant {
  std::uint64_t sequence = 0;            ///< Number of the operation on its communicator, counted from 1.
  std::uint64_t order = 0;               ///< Position in the one order of all communicators; 0 if refused.
  std::exception_ptr refusal = nullptr;  ///< Why it must not be launched: a CollectiveError; nullptr: launch it.
  /// The object that rank 0 submitted (CollectiveSubmission::shared). Null if the operation is refused before rank 0
  /// has submitted it.
  std::shared_ptr<void> shared = nullptr;
};

/// A rank's callback: launches the operation on the rank's device, or reports the refusal. It owns the grant. Called
/// exactly once (L2), on any thread (on the device's launch thread if CollectiveSubmission::on_launch_thread says so),
/// with no lock held, and destroyed right after. The launches of one device are called one at a time, in the order in
/// which the device must execute them. It may post to the device thread, but must not block. If it throws, its
/// communicator is aborted, because the other ranks would wait for this rank forever.
using CollectiveLaunch = UniqueFunction<void(LaunchGrant&&)>;

}  // namespace cox
