#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/queue_policy.hpp>

#include <chrono>
#include <cstddef>
#include <vector>

namespace cox {

/// How a device's threads behave. Read once, when a thread starts.
struct DeviceThreadOptions {
  /// Closures queued at most; enforced under QueuePolicy::Block and Fail.
  std::size_t queue_capacity = 16'384;
  QueuePolicy queue_policy = QueuePolicy::Grow;
  /// How long an idle device thread looks for work before it parks (a service may have it look longer), and how long a
  /// caller that waits for it spins before it sleeps.
  std::chrono::nanoseconds spin = std::chrono::microseconds(250);
  /// Processors that the thread may run on; empty: any. For a GPU, those of its NUMA node.
  std::vector<int> cpus;
  /// A task that holds the thread longer is reported; zero: none is.
  std::chrono::milliseconds stall_threshold = std::chrono::seconds(10);
  /// Keep the histograms of queue wait and run time. Timed is the first task after the thread has slept; from then on
  /// every eighth, which is counted eight times.
  bool histograms = true;

  friend bool operator==(const DeviceThreadOptions&, const DeviceThreadOptions&) = default;
};

/// Sets the options of the threads of `device` that start after this call.
void set_device_thread_options(DeviceId device, DeviceThreadOptions options);

/// Sets the options of the threads of every device without options of its own that start after this call.
void set_default_device_thread_options(DeviceThreadOptions options);

/// The same as long as set_default_device_thread_options has not been called: what a program says goes before what its
/// settings say, whichever comes first.
void offer_default_device_thread_options(DeviceThreadOptions options);

/// The options that a thread of `device` would start with.
[[nodiscard]] DeviceThreadOptions device_thread_options(DeviceId device);

}  // namespace cox
