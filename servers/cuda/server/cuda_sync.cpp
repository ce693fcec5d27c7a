#include <coxswain/runtime/async/device_event_set.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/server/cuda_work.hpp>
#include <coxswain/servers/cuda/stream/sync_point.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace cox::detail {
namespace {

/// Completes a sync after the device has reached its position.
struct SyncEnd {
  CudaDevice::Facts facts;
  SyncPoint end;
  /// Failures known when the sync was issued. The future holds them, and returns them if it is dropped before that.
  std::exception_ptr earlier;
  std::weak_ptr<ErrorReceipt> receipt;

  /// Logs the profile table of all earlier launches, so that the waiting caller finds it. Throws failures since the
  /// sync was issued, together with `earlier`.
  void operator()() {
    facts->profiler.summarise();
    end.complete({earlier, receipt.lock()});
  }
};

void complete(Promise<void>& promise, SyncEnd& end, TakenError earlier) {
  try {
    end();
  } catch (...) {
    return promise.set_error(current_error());
  }
  if (earlier) return promise.set_error(std::move(earlier));
  promise.set_value();
}

/// If durations are measured, the poller completes them in stream order, and reaches this callback after them. Throws
/// std::bad_alloc; then `promise` has not been completed.
void complete_behind_durations(const std::shared_ptr<DeviceEvent>& device_event, Promise<void>& promise, SyncEnd& end,
                               const TakenError& earlier) {
  struct Waiting {
    Promise<void> promise;
    SyncEnd end;
  };
  const auto shared = std::make_shared<Waiting>(std::move(promise), std::move(end));
  try {
    device_event->notify([shared, earlier] { complete(shared->promise, shared->end, earlier); });
  } catch (...) {  // no memory for the callback: the table may be late
    promise = std::move(shared->promise);
    promise.settle_at(device_event, std::move(shared->end), earlier);
  }
}

/// The collectives that the stream itself does not wait for.
StreamPositions uncovered(const StreamPositions& collectives, const StreamPositions& waits) {
  StreamPositions left;
  for (const StreamPosition& end : collectives)
    if (std::ranges::none_of(waits, [&](const StreamPosition& wait) {
          return wait.stream == end.stream && wait.position >= end.position;
        }))
      left.push_back(end);
  return left;
}

/// A sync whose earlier work in the stream has been issued.
struct ArmedSync {
  CudaDevice& device;
  SyncEnd sync;
  std::vector<std::shared_ptr<CudaEvent>> events;  ///< of the stream's work before the sync
  bool behind_durations;
  Promise<void> promise;
  TakenError earlier;

  /// Device thread. Call when the stream's earlier collectives have been issued, too.
  void settle(const StreamPositions& collectives) noexcept {
    try {
      if (!collectives.empty() && gpu_faulted()) throw_gpu_fault(sync.end.site);
      device.streams().add_events(collectives, events);
      if (events.empty()) return complete(promise, sync, std::exchange(earlier, {}));
      device.watch().begin(events.front());
      if (behind_durations)
        return complete_behind_durations(DeviceEventSet::make(std::move(events)), promise, sync, earlier);
      promise.settle_at(DeviceEventSet::make(std::move(events)), std::move(sync), std::exchange(earlier, {}));
    } catch (...) {
      fail();
    }
  }
  /// With the current exception, or what came before it.
  void fail() noexcept { promise.set_error(earlier ? earlier : TakenError{std::current_exception()}); }
};

}  // namespace

void queue_sync(CudaDevice& device, CudaStream& stream, const Caller& caller, Promise<void> promise) {
  try {
    if (gpu_faulted()) throw_gpu_fault(caller.site);
    stream.capture.require_none("a sync", caller.site);
  } catch (...) {
    return promise.set_error(std::current_exception());
  }
  device.notify_when_issued(
      stream, caller.site,
      [&device, stream = stream.shared_from_this(), sequence = stream.next_sequence(), site = caller.site,
       collectives = stream.collectives.left(device.streams()),
       promise = std::move(promise)](const IssueTarget& target, const StreamPositions& waits) mutable {
        auto error = stream->take_errors_before(sequence, site);
        try {
          if (gpu_faulted()) throw_gpu_fault(site);
          collectives = uncovered(collectives, waits);
          SyncEnd sync{device.facts(),
                       {stream, sequence, site, nullptr, stream->begin_turn(sequence)},
                       error.error,
                       error.receipt};
          if (!collectives.empty() && !sync.end.turn) sync.end.turn.emplace(stream->errors(), sequence);
          std::vector<std::shared_ptr<CudaEvent>> events;
          device.streams().add_events(waits, events);
          const bool behind_durations = device.facts()->profiler.measures();
          if (behind_durations) {
            events.push_back(target.queue->mark(device.events()));
          } else {
            device.streams().add_event(*target.queue, events);
          }
          sync.end.held = target.queue->held();
          ArmedSync armed{device, std::move(sync), std::move(events), behind_durations, std::move(promise), error};
          error = {};
          if (collectives.empty()) return armed.settle({});
          // Only the waiter of the sync waits for the collectives; the stream goes on.
          std::shared_ptr<ArmedSync> shared;
          try {
            shared = std::make_shared<ArmedSync>(std::move(armed));
            device.streams().when_issued(collectives, [shared, collectives] { shared->settle(collectives); });
          } catch (...) {
            (shared != nullptr ? *shared : armed).fail();
          }
        } catch (...) {
          promise.set_error(error ? error : TakenError{std::current_exception()});
        }
      });
}

}  // namespace cox::detail
