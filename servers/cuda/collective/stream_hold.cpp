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
  std::uint32_t highest = last_opened_.load();
  while (highest < number && !last_opened_.compare_exchange_weak(highest, number)) {
  }
  std::uint64_t last = number;
  try {
    const std::optional<std::uint64_t> prefix = opened_.note({&last, 1});
    if (!prefix && !is_order_lost_.load()) return;
    last = prefix.value_or(0);
  } catch (const std::bad_alloc&) {
    is_order_lost_.store(true);
  }
  // From then on a hold opens those before it, too, so that none stays shut. Sequentially consistent: either this
  // thread sees what another one has opened meanwhile, or that one sees that the order is lost.
  if (is_order_lost_.load()) last = last_opened_.load();
  // Release pairs with the wait of the stream. Another thread may have stored a later number.
  auto* const word = static_cast<std::atomic<std::uint32_t>*>(word_.get());
  std::uint32_t before = word->load(std::memory_order_relaxed);
  while (before < last && !word->compare_exchange_weak(before, static_cast<std::uint32_t>(last),
                                                       std::memory_order_release, std::memory_order_relaxed)) {
  }
}

}  // namespace cox::detail
