#pragma once

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/device_handle/service/device_thread_options.hpp>
#include <coxswain/perf/queue/lane.hpp>
#include <coxswain/runtime/trace/trace.hpp>

#include <atomic>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace cox::perf {

/// A service without state of its own: what is measured is the way to it.
struct EmptyService {
  explicit EmptyService(DeviceId) {}
};

/// What is kept about each task.
enum class Telemetry : std::uint8_t { Counts, Histograms, Trace };

/// DeviceHandle as a lane: one device, opened for this object and shut down by stop().
template <Telemetry telemetry>
class BasicHandleLane {
 public:
  explicit BasicHandleLane(const LaneOptions& options) : handle_(open(options)) {
    if (telemetry == Telemetry::Trace) trace::start();
  }

  template <class F>
  void push(F&& f) {
    handle_.submit([f = std::forward<F>(f)](EmptyService&) mutable { f(); });
  }

  template <class F>
  void call(F& f) {
    handle_.submit_blocking([&f](EmptyService&) { f(); });
  }

  void stop() {
    shutdown(handle_.device_id());
    if (telemetry == Telemetry::Trace) (void)trace::stop();
  }

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
    thread.histograms = telemetry != Telemetry::Counts;
    set_device_thread_options(device, thread);
    return DeviceHandle<EmptyService>::get(device);
  }

  DeviceHandle<EmptyService> handle_;
};

using HandleLane = BasicHandleLane<Telemetry::Histograms>;
using HandleLaneWithoutHistograms = BasicHandleLane<Telemetry::Counts>;
using TracedHandleLane = BasicHandleLane<Telemetry::Trace>;

static_assert(Lane<HandleLane> && Lane<HandleLaneWithoutHistograms> && Lane<TracedHandleLane>);

}  // namespace cox::perf
