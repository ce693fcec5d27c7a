#include <coxswain/servers/cuda/detail/native_stream.hpp>

#include <coxswain/servers/cuda/detail/cuda_try.hpp>

#include <utility>

namespace cox::detail {

NativeStream::NativeStream(StreamSlot slot, CudaTimeline& timeline) : slot_(slot), timeline_(timeline) {
  COX_CUDA_TRY(stream_create(&stream_, CU_STREAM_NON_BLOCKING, 0));
}

NativeStream::~NativeStream() { COX_CUDA_CHECK(stream_destroy(stream_)); }

const std::shared_ptr<CudaEvent>& NativeStream::mark(CudaEvents& events) {
  timeline_.mark(timeline_.issued(), events.record(stream_));
  return timeline_.covering(timeline_.issued())->event;
}

std::shared_ptr<HeldBytes> NativeStream::held() {
  if (!held_.empty()) {
    std::vector<Bytes> bytes;
    bytes.reserve(held_.size());
    const auto together = std::make_shared<HeldBytes>();
    held_together_.push_back({held_.back().position, together});
    for (Held& held : held_) bytes.push_back(std::move(held.bytes));
    held_.clear();
    together->hold(std::move(bytes));
  }
  return held_together_.empty() ? nullptr : held_together_.back().bytes;
}

void NativeStream::poll() noexcept {
  timeline_.poll();
  const std::uint64_t completed = timeline_.completed();
  for (; !held_together_.empty() && held_together_.front().position <= completed; held_together_.pop_front())
    held_together_.front().bytes->give_back();
  while (!held_.empty() && held_.front().position <= completed) held_.pop_front();
}

}  // namespace cox::detail
