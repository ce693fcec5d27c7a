#include <coxswain/servers/cuda/detail/native_stream.hpp>

#include <coxswain/servers/cuda/detail/cuda_try.hpp>

namespace cox::detail {

NativeStream::NativeStream(StreamSlot slot, CudaTimeline& timeline, int priority) : slot_(slot), timeline_(timeline) {
  COX_CUDA_TRY(stream_create(&stream_, CU_STREAM_NON_BLOCKING, priority));
}

NativeStream::~NativeStream() { COX_CUDA_CHECK(stream_destroy(stream_)); }

const std::shared_ptr<CudaEvent>& NativeStream::mark(CudaEvents& events) {
  timeline_.mark(timeline_.issued(), events.record(stream_));
  return timeline_.covering(timeline_.issued())->event;
}

void NativeStream::poll() noexcept {
  timeline_.poll();
  while (!held_.empty() && held_.front().position <= timeline_.completed()) held_.pop_front();
}

}  // namespace cox::detail
