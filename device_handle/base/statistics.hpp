#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/histogram.hpp>
#include <coxswain/device_handle/base/stage.hpp>

#include <cstddef>
#include <cstdint>

namespace cox {

/// What one device thread has done since it started.
struct Statistics {
  // Law L2: at rest, accepted = completed + failed + cancelled + expired.
  std::uint64_t accepted = 0;   ///< Tasks that a call handed over without an error.
  std::uint64_t completed = 0;  ///< Ran to their end.
  std::uint64_t failed = 0;     ///< Threw.
  std::uint64_t cancelled = 0;  ///< Destroyed unrun: stop requested, or forced shutdown.
  std::uint64_t expired = 0;    ///< Destroyed unrun: deadline passed.

  std::uint64_t parks = 0;      ///< Times the thread looked for sleep after its spin.
  std::uint64_t wakes = 0;      ///< Times it was woken from it.
  std::uint64_t stalls = 0;     ///< Tasks reported for holding the thread too long.
  std::size_t depth = 0;        ///< Tasks accepted and not ended, the running one included.
  std::size_t queue_bytes = 0;  ///< Memory of the queue, in use and kept for use.

  // Of bursts, samples: see DeviceThreadOptions. Empty where stamps are no time (platform.hpp).
  Histogram wait;  ///< From submission to start.
  Histogram run;   ///< From start to end.

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

/// The statistics of a device's thread of that stage; all zero if there is none. Any thread, does not block it.
[[nodiscard]] Statistics statistics(DeviceId device, Stage stage = Stage::Downstream);

}  // namespace cox
