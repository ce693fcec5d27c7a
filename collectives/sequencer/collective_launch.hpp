#pragma once

#include <cstdint>
#include <exception>
#include <memory>

namespace cox {

/// The sequencer's answer to one rank's submission: permission to launch the operation, or a refusal.
struct LaunchGrant {
  std::uint64_t sequence = 0;            ///< Number of the operation on its communicator, counted from 1.
  std::uint64_t order = 0;               ///< Position in the one order of all communicators; 0 if refused.
  std::exception_ptr refusal = nullptr;  ///< Why it must not be launched: a CollectiveError; nullptr: launch it.
  /// The object of the operation that all ranks share, which rank 0 submitted (CollectiveSubmission::operation). Null
  /// if the operation is refused before rank 0 has submitted it.
  std::shared_ptr<void> operation = nullptr;
};

/// A rank's launch: its work in one operation. The sequencer gives it its grant together with those of the other ranks.
class CollectiveLaunch {
 public:
  /// Launches the operation on the rank's device, or reports the refusal. Called exactly once for each submission that
  /// the sequencer accepts (L2), on any thread (on the device's launch thread if CollectiveSubmission::on_launch_thread
  /// says so), with no lock held; the launch is destroyed right after, unless others hold it. The launches of one
  /// device get their grants one at a time, in the order in which the device must execute them. It may post to the
  /// device thread, but must not block. If it throws, its communicator is aborted, because the other ranks would wait
  /// for this rank forever.
  virtual void take_grant(LaunchGrant&& grant) = 0;
  /// Called by the rank instead of take_grant() if a queued submission is not passed to the sequencer, or the sequencer
  /// does not accept it. A submission that could not be queued gets neither call. Device thread.
  virtual void cancel(const std::exception_ptr& cause) noexcept = 0;

 protected:
  ~CollectiveLaunch() = default;
};

}  // namespace cox
