#include <coxswain/servers/cuda/detail/cuda_event.hpp>

#include <coxswain/servers/cuda/detail/cuda_poller.hpp>
#include <coxswain/servers/cuda/detail/cuda_try.hpp>
#include <coxswain/servers/cuda/detail/fault_report.hpp>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

namespace cox::detail {
namespace {

// Looking is faster than the driver's own ways of waiting: an event that can be slept on costs a microsecond more, the
// others keep a processor until they are reached. A short wait keeps the processor; then it is offered to others
// between looks; a long wait sleeps between them, the longer the longer it lasts (systems sleep some 50 us more).
constexpr std::chrono::microseconds keep_processor{100};
constexpr std::chrono::milliseconds look_for{50};
constexpr std::chrono::microseconds shortest_rest{1};
constexpr std::chrono::microseconds longest_rest{50};
constexpr int rests_in_wait = 512;  // a rest is at most this part of the wait so far

}  // namespace

CudaEvent::~CudaEvent() { events_->give_back(native_); }

bool CudaEvent::reached() noexcept {
  if (found_reached() || process_is_ending()) return true;
  const CUresult result = driver().event_query(native_);
  if (result == CUDA_ERROR_NOT_READY && !gpu_faulted()) return false;
  if (result != CUDA_ERROR_NOT_READY) check_cuda(result, "event_query");
  reached_.store(true, std::memory_order_release);
  return true;
}

void CudaEvent::wait() noexcept { static_cast<void>(wait_until(std::chrono::steady_clock::time_point::max())); }

bool CudaEvent::wait_until(std::chrono::steady_clock::time_point deadline) noexcept {
  const auto begin = std::chrono::steady_clock::now();
  while (!reached()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    if (now - begin >= look_for) {
      const auto rest =
          std::clamp<std::chrono::nanoseconds>((now - begin) / rests_in_wait, shortest_rest, longest_rest);
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
  for (CUevent event : free_) COX_CUDA_CHECK(event_destroy(event));
}

std::shared_ptr<CudaEvent> CudaEvents::take() {
  CUevent native = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      native = free_.back();
      free_.pop_back();
    } else {
      if (free_.capacity() <= made_) free_.reserve(2 * made_ + 16);  // giving back needs no memory
      COX_CUDA_TRY(event_create(&native, flags_));
      ++made_;
    }
  }
  try {
    return std::make_shared<CudaEvent>(shared_from_this(), native);
  } catch (...) {
    give_back(native);
    throw;
  }
}

std::shared_ptr<CudaEvent> CudaEvents::record(CUstream stream) {
  auto event = take();
  COX_CUDA_TRY(event_record(event->native(), stream));
  return event;
}

void CudaEvents::give_back(CUevent event) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

}  // namespace cox::detail
