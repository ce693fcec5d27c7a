#include <coxswain/servers/cuda/stream/native_stream.hpp>

#include <coxswain/servers/cuda/driver/fault_report.hpp>

#include <algorithm>

namespace cox::detail {

// After a GPU fault no driver stream is created. The object still exists, with a null stream, so that callers can
// submit work and receive the fault.
NativeStream::NativeStream(StreamPriority priority, std::size_t launches_at_a_time)
    : priority_(priority), launches_at_a_time_(std::min(launches_at_a_time, LaunchBatch::max_kernels)) {
  timeline_.set_in_order(true);
  if (gpu_faulted()) return;
  try {
    int lowest = 0;
    int highest = 0;
    COX_CUDA_TRY(stream_priorities(&lowest, &highest));
    const int wanted = priority == StreamPriority::High ? highest : lowest;
    COX_CUDA_TRY(stream_create(stream_.out(), CU_STREAM_NON_BLOCKING, wanted));
    native_ = stream_.get();
    native_priority_ = wanted;
  } catch (...) {
    if (!gpu_faulted()) throw;
  }
}

NativeStream::NativeStream(std::size_t launches_at_a_time)
    : priority_(StreamPriority::Normal),
      launches_at_a_time_(std::min(launches_at_a_time, LaunchBatch::max_kernels)),
      is_foreign_(true) {
  timeline_.set_in_order(true);
}

// All work has completed, but the last event may not have been reached yet if the completion of the work before it was
// known by other means. Hence the synchronize.
NativeStream::~NativeStream() {
  if (stream_ && !gpu_faulted()) COX_CUDA_CHECK(stream_synchronize(stream_.get()));
}

const std::shared_ptr<CudaEvent>& NativeStream::event_after_all(CudaEvents& events) {
  const CUstream stream = native();
  const std::uint64_t issued = timeline_.issued();
  if (timeline_.last_mark() < issued || timeline_.completed() == issued) timeline_.mark(issued, events.record(stream));
  return timeline_.back().event;
}

void NativeStream::wait_for_own(CudaEvents& events) noexcept {
  flush();
  poll();
  if (timeline_.completed() == timeline_.issued()) return;
  try {
    event_after_all(events)->wait();
  } catch (...) {  // no event can be recorded
    COX_CUDA_CHECK(stream_synchronize(native_));
  }
}

std::shared_ptr<CudaEvent> NativeStream::event_after(std::uint64_t position, CudaEvents& events) {
  if (timeline_.completed() >= position) return nullptr;
  if (const CudaTimeline::Mark* const mark = timeline_.covering(position)) return mark->event;
  return event_after_all(events);
}

}  // namespace cox::detail
