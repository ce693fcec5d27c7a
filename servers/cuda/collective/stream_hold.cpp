#include <coxswain/servers/cuda/collective/stream_hold.hpp>

#include <coxswain/servers/cuda/driver/cuda_try.hpp>

#include <atomic>
#include <new>
#include <optional>
#include <utility>

namespace cox::detail {

StreamHold::StreamHold(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {
  const CurrentContext current(*context_);
  COX_CUDA_TRY(host_alloc(word_.out(), 64, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  ::new (word_.get()) std::atomic<std::uint32_t>(0);
}

StreamHold::~StreamHold() {
  const CurrentContext current(*context_);
  word_.reset();
}

std::uint32_t StreamHold::enqueue(CUstream stream) {
  // The same address on host and device: unified addressing.
  const auto address = reinterpret_cast<CUdeviceptr>(word_.get());
  COX_CUDA_TRY(stream_wait_value(stream, address, count_ + 1, CU_STREAM_WAIT_VALUE_GEQ));
  return ++count_;
}

void StreamHold::open(std::uint32_t number) noexcept {
  std::uint64_t last = number;
  try {
    const std::optional<std::uint64_t> prefix = opened_.note({&last, 1});
    if (!prefix) return;
    last = *prefix;
  } catch (const std::bad_alloc&) {  // the order cannot be kept: all holds up to this one open, so that none stays shut
  }
  // Release pairs with the wait of the stream. Another thread may have stored a later number.
  auto* const word = static_cast<std::atomic<std::uint32_t>*>(word_.get());
  std::uint32_t before = word->load(std::memory_order_relaxed);
  while (before < last && !word->compare_exchange_weak(before, static_cast<std::uint32_t>(last),
                                                       std::memory_order_release, std::memory_order_relaxed)) {
  }
}

}  // namespace cox::detail
