#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/queue_policy.hpp>

#include <chrono>
#include <cstddef>
#include <vector>

namespace cox {

/// Options of the threads of a device. Read once, when a thread starts.
struct DeviceThreadOptions {
  /// Maximum number of queued closures; enforced under QueuePolicy::Block and Fail.
  std::size_t queue_capacity = 16'384;
  QueuePolicy queue_policy = QueuePolicy::Grow;
  /// How long an idle device thread polls for work before it parks (a service may extend this), and how long a caller
  /// that waits for it spins before it sleeps.
  std::chrono::nanoseconds spin = std::chrono::microseconds(250);
  /// Processors that the thread may run on; empty: any. For a GPU, use those of its NUMA node.
  std::vector<int> cpus;
  /// A task that holds the thread longer than this is reported; zero: no reports.
  std::chrono::milliseconds stall_threshold = std::chrono::seconds(10);
  /// Whether to keep the histograms of queue wait and run time. The first task after the thread has slept is timed;
  /// from then on every eighth task is timed and counted eight times.
  bool histograms = true;

  friend bool operator==(const DeviceThreadOptions&, const DeviceThreadOptions&) = default;
};

/// Sets the options of the threads of `device` that start after this call.
void set_device_thread_options(DeviceId device, DeviceThreadOptions options);

/// Sets the options of the threads that start after this call, for every device without options of its own.
void set_default_device_thread_options(DeviceThreadOptions options);

/// Like set_default_device_thread_options, but has no effect if that was called: options set by the program take
/// precedence over those of its settings, whichever are set first.
void offer_default_device_thread_options(DeviceThreadOptions options);

/// Returns the options that a thread of `device` would start with now.
[[nodiscard]] DeviceThreadOptions device_thread_options(DeviceId device);

}  // namespace cox
