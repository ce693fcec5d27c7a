#include <coxswain/servers/cuda/event/doorbell.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/device_handle/handle/inline_device_handle.hpp>
#include <coxswain/device_handle/thread/device_thread.hpp>
#include <coxswain/runtime/async/waiting_help.hpp>
#include <coxswain/runtime/base/adaptive_mutex.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace cox::detail {

struct Doorbell::Shared {
  explicit Shared(DeviceId of) noexcept : device(of) {}

  const DeviceId device;
  std::function<void()> answer;  // device thread; empty: muted
  std::atomic<bool> rung{false};
  std::atomic<bool> muted{false};
  std::atomic<bool> left{false};  // there may be calls
  AdaptiveMutex mutex;
  std::vector<Call> calls;  // guarded by mutex
  std::vector<Call> spare;  // device thread: empty, with room
  Call standing;            // device thread
  std::atomic<bool> standing_is_due{false};

  void look() {
    if (!answer) return;
    make_calls();
    answer();
  }
  bool make_calls() noexcept {
    bool any = false;
    const void* const outer = std::exchange(attended, this);
    // Relaxed: who has left a call rings after it, or looks.
    while (left.load(std::memory_order_relaxed)) {
      std::vector<Call> taken = std::exchange(spare, {});
      {
        const std::lock_guard lock(mutex);
        taken.swap(calls);
        left.exchange(false, std::memory_order_acquire);  // pairs with call_standing()
      }
      for (Call& each : taken) call(each);
      taken.clear();
      spare = std::move(taken);
      if (standing_is_due.load(std::memory_order_relaxed) && standing_is_due.exchange(false, std::memory_order_acquire))
        call(standing);
      any = true;
    }
    attended = outer;
    return any;
  }

  void call(Call& function) const noexcept {
    try {
      function();
    } catch (...) {
      report_task_error({device, StreamId::current(), std::current_exception()});
    }
  }

  // The Shared whose calls this thread will look for by itself.
  static thread_local const void* attended;
};

thread_local const void* Doorbell::Shared::attended = nullptr;

namespace {

/// Shares the device thread with the server, so that what is submitted to it runs there.
struct DoorbellService {
  explicit DoorbellService(DeviceId) {}
};

template <class Handle, class Shared>
std::function<void()> submitter(DeviceId device, std::shared_ptr<Shared> shared) {
  return [handle = Handle::get(device), shared = std::move(shared)] {
    handle.submit_beyond_capacity([shared](DoorbellService&) {
      // Before it looks: who rings from here on rings again. Acquire pairs with the release in ring().
      shared->rung.exchange(false, std::memory_order_acq_rel);
      shared->look();
    });
  };
}

}  // namespace

Doorbell::Doorbell(DeviceId device, std::function<void()> answer)
    : device_(device), shared_(std::make_shared<Shared>(device)) {
  shared_->answer = std::move(answer);
  if (DeviceThread::current() != nullptr) find_device_thread();
}

void Doorbell::find_device_thread() {
  try {
    const bool on_device_thread = DeviceThread::current() != nullptr;
    if (on_device_thread)
      set_waiting_help([weak = std::weak_ptr(shared_)] {
        if (const auto shared = weak.lock()) shared->look();
      });
    submit_ = on_device_thread ? submitter<DeviceHandle<DoorbellService>>(device_, shared_)
                               : submitter<InlineDeviceHandle<DoorbellService>>(device_, shared_);
  } catch (const CallError&) {  // being closed: the device thread looks by itself then
    submit_ = [] {};
  }
}

void Doorbell::ring() noexcept {
  // Release: what the ringer did is visible to who answers.
  // Relaxed: who is muted looks by himself, whoever rings.
  if (!submit_ || shared_->muted.load(std::memory_order_relaxed) ||
      shared_->rung.exchange(true, std::memory_order_acq_rel))
    return;
  constexpr int most_attempts = 1000;
  constexpr std::chrono::milliseconds interval{1};
  for (int attempt = 0; attempt < most_attempts; ++attempt) {
    try {
      return submit_();
    } catch (const CallError&) {  // closed: the device thread polls by itself then
      break;
    } catch (...) {  // no memory: a ring that is lost would be a wait without end
      std::this_thread::sleep_for(interval);
    }
  }
  shared_->rung.store(false, std::memory_order_release);  // the next one is delivered
}

void Doorbell::post(Call call) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->calls.push_back(std::move(call));
    shared_->left.store(true, std::memory_order_relaxed);
  }
  if (Shared::attended != shared_.get()) ring();
}

void Doorbell::set_standing(Call call) noexcept { shared_->standing = std::move(call); }

void Doorbell::call_standing() noexcept {
  // Release pairs with make_calls(): who finds that something is left finds what it is.
  shared_->standing_is_due.store(true, std::memory_order_release);
  shared_->left.store(true, std::memory_order_release);
  if (Shared::attended != shared_.get()) ring();
}

bool Doorbell::make_calls() noexcept { return shared_->make_calls(); }

Doorbell::Attending::Attending(Doorbell& doorbell) noexcept
    : doorbell_(doorbell), outer_(std::exchange(Shared::attended, doorbell.shared_.get())) {}

Doorbell::Attending::~Attending() {
  Shared::attended = outer_;
  if (doorbell_.shared_->left.load(std::memory_order_relaxed)) doorbell_.ring();
}

void Doorbell::mute() noexcept {
  shared_->muted.store(true, std::memory_order_relaxed);
  shared_->answer = nullptr;
}

}  // namespace cox::detail
