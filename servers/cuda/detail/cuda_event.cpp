#include <coxswain/servers/cuda/detail/cuda_event.hpp>

#include <coxswain/device_handle/platform.hpp>
#include <coxswain/servers/cuda/detail/cuda_poller.hpp>
#include <coxswain/servers/cuda/detail/cuda_try.hpp>
#include <coxswain/servers/cuda/detail/fault_report.hpp>

#include <algorithm>
#include <thread>
#include <utility>

namespace cox::detail {
namespace {

// Looking is faster than the driver's own ways of waiting: an event that can be slept on costs a microsecond more, the
// others keep a processor until they are reached. A short wait keeps the processor; then it is offered to others
// between looks; a long wait sleeps, for about a hundredth of the time.
constexpr std::chrono::microseconds keep_processor{100};
constexpr std::chrono::milliseconds look_for{10};
constexpr std::chrono::microseconds rest{50};
// A look at a word in memory is free beside one at the driver, which finds a fault.
constexpr int looks_at_word = 16;
constexpr std::size_t words_at_once = 1024;

}  // namespace

CudaEvent::~CudaEvent() { events_->give_back(native_); }

bool CudaEvent::reached() noexcept {
  if (reached_.load(std::memory_order_acquire) || process_is_ending()) return true;
  if (word_written()) {
    reached_.store(true, std::memory_order_release);
    return true;
  }
  const CUresult result = driver().event_query(native_.event);
  if (result == CUDA_ERROR_NOT_READY && !gpu_faulted()) return false;
  if (result != CUDA_ERROR_NOT_READY) check_cuda(result, "event_query");
  reached_.store(true, std::memory_order_release);
  return true;
}

void CudaEvent::wait() noexcept { static_cast<void>(wait_until(std::chrono::steady_clock::time_point::max())); }

bool CudaEvent::wait_until(std::chrono::steady_clock::time_point deadline) noexcept {
  const auto begin = std::chrono::steady_clock::now();
  while (!reached()) {
    for (int i = 0; awaited_ && i < looks_at_word; ++i) {
      if (word_written()) return reached();
      SystemPlatform::pause();
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    if (now - begin >= look_for) {
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(rest, deadline - now));
    } else if (now - begin >= keep_processor) {
      std::this_thread::yield();
    }
  }
  return true;
}

void CudaEvent::notify(UniqueFunction<void()> function) {
  events_->poller().add(shared_from_this(), std::move(function));
}

void CudaEvent::notify_lazily(UniqueFunction<void()> function) {
  events_->poller().add_lazily(shared_from_this(), std::move(function));
}

CudaEvents::CudaEvents(std::shared_ptr<CudaContext> context, std::shared_ptr<CudaPoller> poller, Timing timing)
    : context_(std::move(context)),
      poller_(std::move(poller)),
      flags_(timing == Timing::Off ? CU_EVENT_DISABLE_TIMING : CU_EVENT_DEFAULT) {}

CudaEvents::~CudaEvents() {
  if (free_.empty()) return;
  const CurrentContext current(*context_);
  for (void* words : words_) COX_CUDA_CHECK(host_free(words));
  for (const NativeEvent& event : free_) COX_CUDA_CHECK(event_destroy(event.event));
}

std::shared_ptr<CudaEvent> CudaEvents::take(bool awaited) {
  NativeEvent native = take_native();
  if (awaited) ++native.last_value;
  try {
    return std::make_shared<CudaEvent>(shared_from_this(), native, awaited);
  } catch (...) {
    give_back(native);
    throw;
  }
}

NativeEvent CudaEvents::take_native() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return make_native();
  const NativeEvent native = free_.back();
  free_.pop_back();
  return native;
}

NativeEvent CudaEvents::make_native() {
  if (free_.capacity() <= made_) free_.reserve(2 * made_ + 16);  // giving back needs no memory
  if (made_ == words_.size() * words_at_once) {
    words_.reserve(words_.size() + 1);
    void* words = nullptr;
    COX_CUDA_TRY(host_alloc(&words, words_at_once * sizeof(std::atomic<std::uint32_t>), CU_MEMHOSTALLOC_PORTABLE));
    words_.push_back(words);
  }
  auto* const word = static_cast<std::atomic<std::uint32_t>*>(words_.back()) + made_ % words_at_once;
  NativeEvent native{.word = std::construct_at(word, 0U)};
  COX_CUDA_TRY(event_create(&native.event, flags_));
  ++made_;
  return native;
}

std::shared_ptr<CudaEvent> CudaEvents::record(CUstream stream) {
  auto event = take();
  COX_CUDA_TRY(event_record(event->native(), stream));
  return event;
}

std::shared_ptr<CudaEvent> CudaEvents::record_awaited(CUstream stream) {
  auto event = take(true);
  const auto word = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(event->native_.word));
  // The word first: the event covers it.
  COX_CUDA_TRY(stream_write_value(stream, word, event->native_.last_value, CU_STREAM_WRITE_VALUE_DEFAULT));
  COX_CUDA_TRY(event_record(event->native(), stream));
  return event;
}

void CudaEvents::give_back(const NativeEvent& event) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

}  // namespace cox::detail
