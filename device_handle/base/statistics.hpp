#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/histogram.hpp>
#include <coxswain/device_handle/base/stage.hpp>

#include <cstddef>
#include <cstdint>

namespace cox {

/// Counts and times of one device thread since it started.
struct Statistics {
  // Law L2: at rest, accepted = completed + failed + cancelled + expired.
  std::uint64_t accepted = 0;   ///< Tasks accepted from calls.
  std::uint64_t completed = 0;  ///< Tasks that ran and returned.
  std::uint64_t failed = 0;     ///< Tasks that ran and threw.
  std::uint64_t cancelled = 0;  ///< Tasks destroyed unrun: stop requested, or forced shutdown.
  std::uint64_t expired = 0;    ///< Tasks destroyed unrun: deadline passed.

  std::uint64_t parks = 0;      ///< Times the thread was about to sleep after its spin.
  std::uint64_t wakes = 0;      ///< Times the thread was woken from sleep.
  std::uint64_t stalls = 0;     ///< Tasks reported because they held the thread too long.
  std::size_t depth = 0;        ///< Tasks accepted and not completed, the running one included.
  std::size_t queue_bytes = 0;  ///< Memory of the queue, in use and kept for reuse.

  // Sampled while the thread is busy: see DeviceThreadOptions::histograms. Empty if stamps are not time (platform.hpp).
  Histogram wait;  ///< From submission to start of a task.
  Histogram run;   ///< From start to end of a task.

  Statistics& operator+=(const Statistics& other) noexcept {
    accepted += other.accepted;
    completed += other.completed;
    failed += other.failed;
    cancelled += other.cancelled;
    expired += other.expired;
    parks += other.parks;
    wakes += other.wakes;
    stalls += other.stalls;
    depth += other.depth;
    queue_bytes += other.queue_bytes;
    wait.merge(other.wait);
    run.merge(other.run);
    return *this;
  }
};

/// Statistics of the device's thread of this stage; all zero if there is no such thread. Any thread. Does not block the
/// device thread.
[[nodiscard]] Statistics statistics(DeviceId device, Stage stage = Stage::Downstream);

}  // namespace cox
