#include <coxswain/servers/cuda/event/cuda_event.hpp>

#include <coxswain/runtime/handle/recycled_memory.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/event/cuda_poller.hpp>

#include <algorithm>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

namespace cox::detail {
namespace {

// Polling is faster than the driver's own waits: waiting on a blocking-sync event costs 1 us more, and waiting on other
// events spins until they are reached. A short wait spins; a longer one yields the processor between polls; a long one
// sleeps between polls, for a time that grows with the wait (the system adds about 50 us to each sleep).
constexpr std::chrono::microseconds keep_processor{100};
constexpr std::chrono::milliseconds keep_awake{50};
constexpr std::chrono::microseconds shortest_rest{1};
constexpr std::chrono::microseconds longest_rest{50};
constexpr int rests_in_wait = 512;  // each sleep is at most this fraction (1/512) of the wait so far

}  // namespace

CudaEvent::~CudaEvent() {
  if (native_ != nullptr) events_->release(*native_);
}

void CudaEvent::enqueue_wait(CUstream stream) const {
  if (native_ != nullptr) {
    COX_CUDA_TRY(stream_wait_event(stream, native(), CU_EVENT_WAIT_DEFAULT));
  } else {
    COX_CUDA_TRY(stream_wait_value(stream, events_->counter(), count_, CU_STREAM_WAIT_VALUE_GEQ));
  }
}

// True also after a GPU fault, so that all waits end. Clients that waited get the fault from SyncPoint.
bool CudaEvent::reached() noexcept {
  if (known_reached() || process_is_ending()) return true;
  if (native_ == nullptr) {
    if (!events_->counter_reached(count_) && !later_->reached()) return false;  // later_ detects a GPU fault
    reached_.store(true, std::memory_order_release);
    return true;
  }
  const CUresult result = [this] {
    const RelaxedCapture relaxed;
    return driver().event_query(native());
  }();
  if (result == CUDA_ERROR_NOT_READY && !gpu_faulted()) return false;
  if (result != CUDA_ERROR_NOT_READY) check_cuda(result, "event_query");
  reached_.store(true, std::memory_order_release);
  return true;
}

// Threads that query events at the same time block each other inside the driver, so only one thread polls an event.
bool CudaEvent::poll() noexcept {
  // Load before the exchange: an exchange by each waiting thread would take the cache line from the polling thread.
  if (polling_.load(std::memory_order_relaxed) || !begin_watch()) return known_reached();
  const bool found = reached();
  end_watch();
  return found;
}

void CudaEvent::wait() noexcept { static_cast<void>(wait_until(std::chrono::steady_clock::time_point::max())); }

bool CudaEvent::wait_until(std::chrono::steady_clock::time_point deadline) noexcept {
  const auto begin = std::chrono::steady_clock::now();
  // Every 1024th iteration queries the driver in any case: the thread that polls may have been preempted.
  for (unsigned looks = 1; looks % 1024 == 0 ? !reached() : !poll(); ++looks) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return reached();
    if (now - begin >= keep_awake) {
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
  if (made_.empty() && !counter_) return;
  const CurrentContext current(*context_);
  made_.clear();
  counter_.reset();
}

std::shared_ptr<CudaEvent> CudaEvents::acquire() {
  NativeEvent* native = nullptr;
  {
    const std::lock_guard lock(mutex_);
    // Acquire pairs with the release in release().
    if (free_ == nullptr) free_ = given_back_.exchange(nullptr, std::memory_order_acquire);
    if (free_ == nullptr) {
      DriverEvent made;
      COX_CUDA_TRY(event_create(made.out(), flags_));
      made_.push_back({std::move(made), nullptr});
      free_ = &made_.back();
    }
    native = std::exchange(free_, free_->next);
  }
  try {
    return make_recycled<CudaEvent>(shared_from_this(), *native);
  } catch (...) {
    release(*native);
    throw;
  }
}

std::shared_ptr<CudaEvent> CudaEvents::record(CUstream stream) {
  auto event = acquire();
  COX_CUDA_TRY(event_record(event->native(), stream));
  return event;
}

CUdeviceptr CudaEvents::counter() {
  if (!counter_) {
    COX_CUDA_TRY(host_alloc(counter_.out(), 64, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    ::new (counter_.get()) std::atomic<std::uint32_t>(0);
  }
  return reinterpret_cast<CUdeviceptr>(counter_.get());  // same address on host and device: unified addressing
}

std::shared_ptr<CudaEvent> CudaEvents::make_counted(std::shared_ptr<CudaEvent> later, std::uint32_t count) {
  return make_recycled<CudaEvent>(shared_from_this(), std::move(later), count);
}

void CudaEvents::release(NativeEvent& event) noexcept {
  event.next = given_back_.load(std::memory_order_relaxed);
  while (!given_back_.compare_exchange_weak(event.next, &event, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

}  // namespace cox::detail
