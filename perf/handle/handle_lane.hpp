#pragma once

#include <coxswain/device_handle/device_handle.hpp>
#include <coxswain/device_handle/device_thread_options.hpp>
#include <coxswain/device_handle/shutdown.hpp>
#include <coxswain/perf/queue/lane.hpp>

#include <atomic>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace cox::perf {

/// A service without state of its own: what is measured is the way to it.
struct EmptyService {
  explicit EmptyService(DeviceId) {}
};

/// DeviceHandle as a lane: one device, opened for this object and shut down by stop().
template <bool Histograms>
class BasicHandleLane {
 public:
  explicit BasicHandleLane(const LaneOptions& options) : handle_(open(options)) {}

  template <class F>
  void push(F&& f) {
    handle_.submit([f = std::forward<F>(f)](EmptyService&) mutable { f(); });
  }

  template <class F>
  void call(F& f) {
    handle_.submit_blocking([&f](EmptyService&) { f(); });
  }

  void stop() { shutdown(handle_.device_id()); }

  const DeviceHandle<EmptyService>& handle() const { return handle_; }

 private:
  static DeviceHandle<EmptyService> open(const LaneOptions& options) {
    static std::atomic<std::uint16_t> next{0};
    const DeviceId device{.type = 0, .index = next.fetch_add(1, std::memory_order_relaxed)};
    DeviceThreadOptions thread;
    if (options.capacity != 0) {
      thread.queue_capacity = options.capacity;
      thread.queue_policy = QueuePolicy::Block;
    }
    thread.histograms = Histograms;
    set_device_thread_options(device, thread);
    return DeviceHandle<EmptyService>::get(device);
  }

  DeviceHandle<EmptyService> handle_;
};

using HandleLane = BasicHandleLane<true>;
using HandleLaneWithoutHistograms = BasicHandleLane<false>;

static_assert(Lane<HandleLane> && Lane<HandleLaneWithoutHistograms>);

}  // namespace cox::perf
